"""The command line refuses what cannot work in one line, and signs what the server takes."""

import jwt
import pytest
from typer.testing import CliRunner

from server.cli import app

SECRET = "a-secret-of-at-least-thirty-two-bytes!"


@pytest.fixture
def run(monkeypatch):
    for name in ("CONSILIUM_SECRET", "CONSILIUM_SECRET_FILE", "CONSILIUM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return CliRunner().invoke


def test_serve_refuses_an_address_beyond_loopback_without_a_secret(run):
    result = run(app, ["serve", "--host", "0.0.0.0", "--port", "0"])
    assert result.exit_code == 2
    assert "CONSILIUM_SECRET_FILE" in result.output


def test_a_token_is_what_its_options_say(run, tmp_path):
    secret_file = tmp_path / "secret"
    secret_file.write_text(SECRET + "\n")
    result = run(
        app,
        ["token", "--room", "r1", "--participant", "wu", "--role", "chair", "--minutes", "5"],
        env={"CONSILIUM_SECRET_FILE": str(secret_file)},
    )
    assert result.exit_code == 0
    claims = jwt.decode(
        result.stdout.strip(), SECRET, algorithms=["HS256"], options={"verify_aud": False}
    )
    assert (claims["room"], claims["sub"], claims["role"]) == ("r1", "wu", "chair")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--room", "r", "--participant", "p"], "no secret"),
        (["--room", "../x", "--participant", "p"], "letters, digits"),
        (["--room", "r", "--participant", "p", "--role", "king"], "no role"),
    ],
)
def test_a_token_that_would_not_work_is_not_made(run, options, said):
    env = {} if said == "no secret" else {"CONSILIUM_SECRET": SECRET}
    result = run(app, ["token", *options], env=env)
    assert result.exit_code == 2
    assert said in result.output


def test_a_short_secret_is_refused(run):
    result = run(
        app, ["token", "--room", "r", "--participant", "p"], env={"CONSILIUM_SECRET": "short"}
    )
    assert result.exit_code == 2
    assert "32 bytes" in result.output


def test_ask_names_the_file_that_is_not_there(run):
    result = run(app, ["ask", "what?", "--file", "/no/such.png"])
    assert result.exit_code == 2
    assert "/no/such.png" in result.output


@pytest.mark.parametrize("model", ["/models/none", "./none", "nope", "a/b/c"])
def test_serve_refuses_a_model_that_is_not_there_before_it_listens(run, tmp_path, model):
    result = run(app, ["serve", "--model", model, "--port", "0", "--folder", str(tmp_path)])
    assert result.exit_code == 2
    assert model in result.output and "smollm2-135m" in result.output


def test_serve_says_how_to_fetch_an_embedded_model(run, tmp_path):
    env = {"CONSILIUM_MODELS": str(tmp_path)}
    result = run(app, ["serve", "--port", "0", "--folder", str(tmp_path)], env=env)
    assert result.exit_code == 2
    assert "consilium models pull smollm2-135m" in result.output


def test_serve_refuses_a_number_format_that_is_none(run):
    result = run(app, ["serve", "--dtype", "fp8", "--port", "0"])
    assert result.exit_code == 2
    assert "fp8" in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--token-file", "/no/token"], "/no/token"), (["--room", "a/b"], "a/b")],
)
def test_ask_says_in_one_line_what_cannot_be(run, options, said):
    result = run(app, ["ask", "hi", *options])
    assert result.exit_code == 2
    assert said in result.output and "Traceback" not in result.output
