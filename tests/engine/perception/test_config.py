import pytest

from engine.perception.config import PerceptionConfig


def test_the_defaults_are_the_documented_limits():
    config = PerceptionConfig()
    assert (config.max_bytes, config.max_pixels) == (512 * 1024 * 1024, 100_000_000)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_bytes", 0),
        ("decode_s", -1.0),
        ("decode_workers", 9),
        ("ocr_threads", 65),
        ("ocr_side_px", 100),
        ("ocr_min_score", 1.0),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        PerceptionConfig(**{field: value})


def test_an_unknown_setting_is_refused():
    with pytest.raises(TypeError):
        PerceptionConfig(speed=11)
