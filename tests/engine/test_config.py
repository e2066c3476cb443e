"""Settings that cannot work are refused when they are made."""

import pytest

from engine.config import EngineConfig


def test_the_defaults_are_valid():
    assert EngineConfig(model="x").max_batch == 32


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": ""},
        {"dtype": "int3"},
        {"max_batch": 0},
        {"max_step_tokens": 8, "max_batch": 32},
        {"threads": -1},
        {"kv_budget_bytes": 0},
        {"max_sessions": 1},
    ],
)
def test_what_cannot_work_is_refused(wrong):
    with pytest.raises(ValueError):
        EngineConfig(**{"model": "x"} | wrong)


def test_unknown_settings_are_refused():
    with pytest.raises(TypeError):
        EngineConfig(model="x", modle="y")
