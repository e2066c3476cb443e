import io

import numpy as np
import pytest
from PIL import Image

from engine.perception.detect import identify
from engine.perception.levels import Pyramid
from engine.perception.picture import Source
from tests.support.labsheet_render import photo, render_sheet


def pyramid(tmp_path, content):
    path = tmp_path / "../../etc/passwd".replace("/", "_")
    path.write_bytes(content)
    source = Source(str(path), identify(str(path), max_bytes=10**9, max_pixels=10**8))
    return source, Pyramid("m", source, str(tmp_path / "derived"))


def all_levels(tmp_path, content):
    source, levels = pyramid(tmp_path, content)
    early = list(levels.early())
    return source, [*early, *levels.rest(source.pixels())]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((2000, 1500), [16, 64, 256, 1024, 0]),
        ((1024, 700), [16, 64, 256, 0]),
        ((65, 3), [16, 64, 0]),
        ((16, 16), [0]),
        ((1, 1), [0]),
    ],
)
def test_levels_rise_and_none_enlarges_the_picture(tmp_path, size, expected):
    _, levels = all_levels(tmp_path, photo(*size))
    assert [one.level for one in levels] == expected
    for one in levels:
        with Image.open(one.path) as shown:
            shown.load()
            assert shown.size == (one.width, one.height)
        assert max(one.width, one.height) == (one.level or max(size))


def test_each_level_is_complete_before_the_next_is_begun(tmp_path):
    source, levels = pyramid(tmp_path, photo(2000, 1500))
    seen = set()
    for one in [*levels.early()]:
        seen.add(one.path)
    for one in levels.rest(source.pixels()):
        seen.add(one.path)
        assert {str(path) for path in (tmp_path / "derived").iterdir()} == seen


def test_the_early_levels_need_no_full_decode(tmp_path):
    _, levels = pyramid(tmp_path, photo(2000, 1500))
    assert [one.level for one in levels.early()] == [16, 64, 256]


def test_a_small_picture_is_decoded_only_once(tmp_path):
    _, levels = pyramid(tmp_path, photo(800, 600))
    assert list(levels.early()) == []


def test_full_is_never_the_original_and_is_not_turned_twice(tmp_path):
    original = photo(400, 300, orientation=6)
    _, levels = all_levels(tmp_path, original)
    content = (tmp_path / "derived" / "level-full.jpg").read_bytes()
    assert content != original
    with Image.open(io.BytesIO(content)) as full:
        assert full.size == (300, 400)
        assert not full.getexif() and "icc_profile" not in full.info


def test_a_sheet_stays_lossless_and_a_big_photograph_in_a_png_does_not(tmp_path):
    sheet = render_sheet(1, "en")
    source, levels = all_levels(tmp_path, sheet.png)
    assert levels[-1].media_type == "image/png"
    with Image.open(levels[-1].path) as full, Image.open(io.BytesIO(sheet.png)) as drawn:
        assert np.array_equal(np.asarray(full), np.asarray(drawn))
    stream = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (2100, 2000, 3), np.uint8)
    Image.fromarray(noise).save(stream, "PNG", compress_level=1)
    _, levels = all_levels(tmp_path, stream.getvalue())
    assert levels[-1].media_type == "image/jpeg"


def test_names_come_from_nobody_but_us(tmp_path):
    _, levels = all_levels(tmp_path, photo(300, 200))
    assert [one.path.rsplit("/", 1)[1] for one in levels] == [
        "level-16.webp",
        "level-64.webp",
        "level-256.webp",
        "level-full.jpg",
    ]
