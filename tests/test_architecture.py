"""The house rules that a machine can hold: imports, purity, file length, mirrored tests."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("protocol", "engine", "server", "consilium")

MAY_IMPORT = {
    "protocol": {"protocol"},
    "engine": {"engine"},
    # `engine.embedded` is the table of model files, which the command line fetches; no torch
    # comes with importing it.
    "server": {"server", "protocol", "engine.api", "engine.client", "engine.embedded"},
    "consilium": {"protocol", "server.cli"},
}
# Inside a folder a module imports only what stands before it; the last group may import all.
ORDER = {
    "protocol": [
        "errors base",
        "media shapes credit",
        "events state",
        "messages",
        "codec",
        "room",
        "session",
        "joining outflow",
        "uploading",
        "recording filming surroundings",
        "consultation",
        "client schema __init__",
    ],
}
IMPURE = {"asyncio", "socket", "ssl", "time", "random", "os", "threading", "datetime", "secrets"}
TORCHLESS = ("protocol", "server", "consilium")

MAX_LINES = 400
LONGER_FOR_A_REASON: dict[str, str] = {
    "engine/api.py": "the whole contract of the engine is read in one place",
    "protocol/messages.py": "every message of the wire is read in one place",
    "tests/support/make_vectors.py": "histories of a room, one behind the other",
}
# Modules without a test file of their own name, each with the reason.
TESTED_ELSEWHERE = {
    "engine/__main__.py": "runs through tests/contracts and tests/faults",
    "consilium/__main__.py": "one call, run by every end-to-end test",
    "consilium/__init__.py": "re-exports only",
    "server/proposals.py": "what a room is asked: tests/server/test_room.py",
    "server/log.py": "a contract: tests/contracts/test_log.py",
    "server/broker.py": "a contract: tests/contracts/test_broker.py",
    "engine/api.py": "a contract: tests/contracts/test_engine.py",
    "protocol/consultation.py": "over a real server: tests/protocol/test_client.py",
    "engine/sheet.py": "part of the prompt: tests/engine/test_prompt.py",
    "engine/prompter.py": "part of the loop: tests/engine/test_pixels.py, test_loop.py",
}


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names.add(node.module or "")
            if node.module in OURS:
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def within(name: str, allowed: set[str]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in allowed)


@pytest.mark.parametrize("folder", sorted(MAY_IMPORT))
def test_a_folder_imports_only_what_lies_below_it(folder):
    roots = {allowed.split(".")[0] for allowed in MAY_IMPORT[folder]}
    for path in modules(folder):
        ours = {name for name in imports(path) if name.split(".")[0] in OURS}
        stray = {n for n in ours if not within(n, MAY_IMPORT[folder]) and n not in roots}
        assert not stray, f"{path.relative_to(ROOT)} imports {sorted(stray)}"


@pytest.mark.parametrize("folder", sorted(ORDER))
def test_inside_a_folder_lower_never_imports_higher(folder):
    rank = {name: i for i, group in enumerate(ORDER[folder]) for name in group.split()}
    for path in modules(folder):
        name = path.stem
        assert name in rank, f"{path.relative_to(ROOT)} has no place in the order"
        for imported in imports(path):
            parts = imported.split(".")
            if parts[0] == folder and len(parts) > 1 and parts[1] in rank and parts[1] != name:
                assert rank[parts[1]] < rank[name], f"{name} imports {parts[1]}, which is higher"


def test_protocol_is_pure_but_for_its_client():
    for path in modules("protocol"):
        if path.name != "client.py":
            stray = {name for name in imports(path) if name.split(".")[0] in IMPURE}
            assert not stray, f"{path.relative_to(ROOT)} imports {sorted(stray)}"


def test_the_web_process_never_loads_torch():
    import subprocess
    import sys

    heavy = "{'torch', 'transformers', 'onnxruntime', 'rapidocr', 'PIL'}"
    code = (
        "import sys, server.app, server.cli, protocol.client, engine.client, engine.embedded\n"
        f"sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_client_needs_no_extra():
    """Someone who only speaks the protocol installs neither Starlette nor torch."""
    import subprocess
    import sys

    code = (
        "import sys, consilium, server.cli\n"
        "sys.exit(', '.join({'starlette', 'uvicorn', 'torch', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def source_files() -> list[Path]:
    found = [path for folder in (*OURS, "tests", "benchmarks") for path in modules(folder)]
    web = ROOT / "web-client"
    for pattern in ("src/**/*.ts", "src/**/*.css", "*.html", "*.css"):
        found += [p for p in web.glob(pattern) if ".gen." not in p.name]
    return found


def test_no_file_is_longer_than_400_lines_without_a_reason():
    long = {
        str(path.relative_to(ROOT)): count
        for path in source_files()
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert long.keys() == LONGER_FOR_A_REASON.keys(), long


@pytest.mark.parametrize("folder", ["protocol", "engine", "server"])
def test_every_module_has_its_test_file(folder):
    missing = []
    for path in modules(folder):
        name = str(path.relative_to(ROOT))
        test = ROOT / "tests" / path.relative_to(ROOT).with_name(f"test_{path.name}")
        if path.name != "__init__.py" and name not in TESTED_ELSEWHERE and not test.exists():
            missing.append(name)
    assert not missing, f"no test file for {missing}"


def test_every_module_says_what_it_is_for():
    silent = [
        str(path.relative_to(ROOT))
        for folder in OURS
        for path in modules(folder)
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent


def test_the_changelog_knows_the_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    top = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert top and top[1] == version


def test_links_between_documents_lead_somewhere():
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
