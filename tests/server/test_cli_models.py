"""The models commands say what is here, what changed, and never leave a model half there."""

import pytest
from typer.testing import CliRunner

from engine.client import default_models_cache
from engine.embedded import TABLE
from server.cli_models import app

run = CliRunner().invoke


def test_list_says_what_is_not_here(tmp_path):
    result = run(app, ["list", "--cache", str(tmp_path)])
    assert result.exit_code == 0
    assert "smollm2-135m" in result.stdout
    assert "no" in result.stdout


def test_verify_names_a_model_that_is_not_here(tmp_path):
    result = run(app, ["verify", "--cache", str(tmp_path)])
    assert result.exit_code == 1
    assert "smollm2-135m" in result.output


def test_pull_refuses_a_name_that_is_not_in_the_table(tmp_path):
    result = run(app, ["pull", "gpt-17", "--cache", str(tmp_path)])
    assert result.exit_code == 1
    assert "gpt-17" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.model
def test_pull_leaves_alone_what_is_here_and_verify_finds_it_whole():
    import os

    cache = default_models_cache(dict(os.environ))
    first = run(app, ["pull", *TABLE])
    assert first.exit_code == 0, first.output
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    assert run(app, ["pull"]).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert run(app, ["verify"]).exit_code == 0
