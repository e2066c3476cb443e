"""What is set, from where, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.config import BadSettings, Settings, from_environment, is_loopback


def test_beyond_loopback_a_secret_is_needed():
    with pytest.raises(BadSettings, match="SECRET_FILE"):
        Settings(host="0.0.0.0")
    assert not Settings(host="0.0.0.0", secret="s" * 32).is_open
    assert Settings().is_open


@pytest.mark.parametrize("name", ["kv_budget_bytes", "kv_ram_bytes", "kv_disk_bytes"])
def test_budgets_below_nothing_are_refused(name):
    with pytest.raises(BadSettings, match="kv_budget_bytes"):
        Settings(**{name: -1})
    assert Settings(kv_ram_bytes=0, kv_disk_bytes=0)


def test_a_short_secret_is_refused():
    with pytest.raises(BadSettings, match="32 bytes"):
        Settings(secret="short")


@pytest.mark.parametrize(
    ("host", "is_so"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("::", False)],
)
def test_loopback_is_known_by_its_addresses(host, is_so):
    assert is_loopback(host) is is_so
    assert not is_loopback("localhost.example.org")


def test_the_environment_sets_and_a_flag_wins(tmp_path):
    (tmp_path / "secret").write_text("f" * 40 + "\n")
    environment = {
        "CONSILIUM_PORT": "9000",
        "CONSILIUM_HEARTBEAT_S": "2.5",
        "CONSILIUM_FOLDER": str(tmp_path),
        "CONSILIUM_ALLOWED_ORIGINS": "https://a.example, https://b.example",
        "CONSILIUM_SECRET_FILE": str(tmp_path / "secret"),
        "HOME": "/",
    }
    settings = from_environment(environment, port=9001, host=None)
    assert (settings.port, settings.heartbeat_s, settings.folder) == (9001, 2.5, Path(tmp_path))
    assert settings.allowed_origins == ("https://a.example", "https://b.example")
    assert settings.secret == "f" * 40


@pytest.mark.parametrize(("text", "is_so"), [("true", True), ("1", True), ("no", False)])
def test_a_switch_is_true_or_false_in_words_or_figures(text, is_so):
    settings = from_environment({"CONSILIUM_ENGINE_DETERMINISTIC": text})
    assert settings.engine_deterministic is is_so


@pytest.mark.parametrize(
    ("environment", "flags"),
    [
        ({"CONSILIUM_PORT": "many"}, {}),
        ({"CONSILIUM_SECRET_FILE": "/nowhere/at/all"}, {}),
        ({}, {"colour": "red"}),
        ({"CONSILIUM_WORKERS": "0"}, {}),
        ({"CONSILIUM_ENGINE_DETERMINISTIC": "perhaps"}, {}),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(environment, flags):
    with pytest.raises(BadSettings):
        from_environment(environment, **flags)


def test_R21_more_than_one_worker_without_redis_is_refused():
    with pytest.raises(BadSettings, match="--redis"):
        from_environment({}, workers=2)
    assert from_environment({}, workers=2, redis="redis://h").workers == 2
