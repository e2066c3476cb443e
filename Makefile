# Two commands matter to a newcomer: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Where torch's CPU build comes from on Linux without an NVIDIA GPU, when the configured package
# index has none of its own.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
HOST ?= 127.0.0.1
PORT ?= 8760
WEB := web-client
WEB_SOURCES := $(shell find $(WEB)/src $(WEB)/public $(WEB)/*.html $(WEB)/*.ts $(WEB)/*.css -type f 2>/dev/null)

.PHONY: all run test soak check fix install models web test-python test-web test-requirements size clean
.DEFAULT_GOAL := all

all: check test ## everything CI does

run: install models web ## install what is missing, then serve on http://127.0.0.1:8760
	@$(BIN)/consilium serve --host $(HOST) --port $(PORT)

install: $(VENV)/installed ## the environment with every extra

$(VENV)/installed: pyproject.toml deploy/install.py
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Consilium needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo 'Python has no venv module: apt-get install python3-venv' >&2; exit 1; }
	@$(BIN)/python deploy/install.py --torch-index $(TORCH_INDEX)
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@$(BIN)/python -m pip install --quiet --group dev
	@touch $@

models: install ## the embedded models, downloaded and converted once
	@$(BIN)/consilium models pull

web: $(WEB)/dist/index.html ## the page

$(WEB)/node_modules/.package-lock.json: $(WEB)/package.json $(WEB)/package-lock.json
	@command -v npm >/dev/null || { echo 'Consilium needs Node.js 20 or newer with npm to build its page: https://nodejs.org' >&2; exit 1; }
	@cd $(WEB) && npm ci --no-audit --no-fund --loglevel=error

$(WEB)/dist/index.html: $(WEB)/node_modules/.package-lock.json $(WEB_SOURCES)
	@cd $(WEB) && npm run --silent build
	@touch $@

test-requirements: ## redis-server, Chromium, a Chinese font and DICOM checkers, through the system's package manager
	@sh deploy/test-requirements.sh

check: $(VENV)/installed-dev $(WEB)/node_modules/.package-lock.json ## format, lint, types, architecture, generated files; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m protocol.schema --check
	$(BIN)/python -m pytest -q tests/test_architecture.py
	cd $(WEB) && npm run --silent check

fix: $(VENV)/installed-dev ## format, and mend what can be mended by machine
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m protocol.schema

test: test-requirements check models web test-web test-python ## every test, on the real Redis and Chromium

test-python: $(VENV)/installed-dev
	$(BIN)/python -m pytest

soak: $(VENV)/installed-dev ## the seeded faults in full: killed workers and Redis restarts, 10,000 sessions of KV
	CONSILIUM_SOAK_ROUNDS=20 $(BIN)/python -m pytest tests/faults/test_workers.py -k R10 --durations=3
	CONSILIUM_SOAK_SESSIONS=10000 CONSILIUM_SOAK_KILLS=40 $(BIN)/python -m pytest tests/engine/kv/test_store.py -k 'thousand or kill' --durations=3
	CONSILIUM_SOAK_TURNS=2000 CONSILIUM_SOAK_LAG_SECONDS=600 $(BIN)/python -m pytest tests/engine/test_soak.py --durations=3

test-web: $(WEB)/node_modules/.package-lock.json
	cd $(WEB) && npm test --silent

size: ## lines per folder
	@for folder in protocol engine server consilium $(WEB)/src tests; do \
	  printf '%8d %s\n' "$$(find $$folder -name '*.py' -o -name '*.ts' -o -name '*.css' | xargs cat | grep -cv '^\s*$$')" $$folder; done

clean: ## remove what was built, keep the models and the rooms
	rm -rf $(VENV) $(WEB)/node_modules $(WEB)/dist
