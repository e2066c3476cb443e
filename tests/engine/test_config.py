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
        {"kv_ram_bytes": -1},
        {"kv_disk_bytes": -1},
        {"max_sessions": 1},
    ],
)
def test_what_cannot_work_is_refused(wrong):
    with pytest.raises(ValueError):
        EngineConfig(**{"model": "x"} | wrong)


def test_without_folder_disk_or_the_ram_it_passes_through_nothing_is_kept_on_disk():
    assert EngineConfig(model="x", kv_folder="kv").keeps_on_disk
    for off in ({"kv_folder": None}, {"kv_disk_bytes": 0}, {"kv_ram_bytes": 0}):
        assert not EngineConfig(**{"model": "x", "kv_folder": "kv"} | off).keeps_on_disk


def test_unknown_settings_are_refused():
    with pytest.raises(TypeError):
        EngineConfig(model="x", modle="y")
