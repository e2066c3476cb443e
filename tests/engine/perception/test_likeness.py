"""What two glances at stills say."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from engine.perception.likeness import Glance
from tests.support.filming import jpeg


def page(value: str = "11.2", size: tuple[int, int] = (1920, 1080)) -> Image.Image:
    picture = Image.new("RGB", size, "white")
    font = ImageFont.load_default(28)
    draw = ImageDraw.Draw(picture)
    for line in range(20):
        draw.text((200, 60 + 45 * line), f"Analyte {line}   {value}   mmol/L", "black", font)
    return picture


def test_a_still_is_like_itself_after_a_codec_and_a_sensor():
    import io

    clean = page()
    coded = Image.open(io.BytesIO(jpeg(clean, 60)))
    noise = np.random.default_rng(2).normal(0, 12, (1080, 1920, 3))
    noisy = Image.fromarray((np.asarray(clean) + noise).clip(0, 255).astype(np.uint8))
    assert Glance.of(clean).is_like(Glance.of(coded))
    assert Glance.of(clean).is_like(Glance.of(noisy))


@pytest.mark.parametrize("value", ["11.9", "17.2", "1.12"])
def test_a_changed_digit_is_another_still(value):
    assert not Glance.of(page()).is_like(Glance.of(page(value)))


def test_another_shape_is_another_still():
    assert not Glance.of(page()).is_like(Glance.of(page(size=(1080, 1920))))


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1), (9, 7)])
def test_any_size_can_be_glanced_at(size):
    picture = Image.new("RGB", size, "gray")
    assert Glance.of(picture).is_like(Glance.of(picture))
