"""Plain settings cross the process border as JSON and find the model cache."""

from pathlib import Path

import msgspec

from engine.settings import EngineSettings, default_models_cache


def test_settings_cross_the_border_unchanged():
    settings = EngineSettings(models_cache="/m", threads=1, perception={"max_bytes": 5})
    assert msgspec.json.decode(msgspec.json.encode(settings), type=EngineSettings) == settings


def test_the_cache_is_where_the_environment_says_or_in_the_home_folder():
    assert default_models_cache({"CONSILIUM_MODELS": "/srv/models"}) == Path("/srv/models")
    assert default_models_cache({}) == Path.home() / ".cache" / "consilium" / "models"
