"""One still of a camera: new, unchanged, due, or no JPEG at all."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from engine.api import EngineCode, EngineError, Keyframe
from engine.perception.stills import still
from engine.perception.wire import Finished, Still
from tests.support.filming import jpeg


@pytest.fixture
def ask(tmp_path):
    def look(content: bytes, frame: int = 0, last: int | None = None, is_due: bool = False):
        (tmp_path / "still.jpg").write_bytes(content)
        request = Still(
            media="cam",
            path=str(tmp_path / "still.jpg"),
            derived_dir=str(tmp_path),
            frame=frame,
            pts_us=frame * 10,
            last_read=last,
            is_due=is_due,
            max_bytes=1_000_000,
            max_pixels=1_000_000,
            cpu_s=10,
        )
        *made, end = still(request)
        assert isinstance(end, Finished)
        return made[0] if made else None

    return look


def picture(value: int) -> bytes:
    return jpeg(Image.new("RGB", (320, 200), (value, value, value)))


def test_the_first_still_is_a_keyframe_with_its_time(ask, tmp_path):
    made = ask(picture(50), frame=7)
    assert isinstance(made, Keyframe)
    assert (made.frame, made.pts_us, made.width, made.height, made.like) == (7, 70, 320, 200, None)
    with Image.open(made.path) as written:
        assert written.format == "JPEG" and written.size == (320, 200)


def test_an_unchanged_still_is_said_only_when_it_is_due(ask):
    ask(picture(50), frame=0)
    assert ask(picture(50), frame=1, last=0) is None
    assert ask(picture(50), frame=1, last=0, is_due=True).like == 0
    assert ask(picture(90), frame=2, last=0).like is None


def test_a_last_still_that_was_deleted_is_no_reason_to_fail(ask):
    assert ask(picture(50), frame=900, last=3).like is None


def test_exif_orientation_is_applied_once(ask):
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (300, 200)).save(out, "JPEG", exif=exif)
    made = ask(out.getvalue())
    assert (made.width, made.height) == (200, 300)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", EngineCode.MEDIA_EMPTY),
        (b"no picture at all", EngineCode.MEDIA_UNSUPPORTED),
        (picture(5)[:-200], EngineCode.MEDIA_TRUNCATED),
        (b"x" * 1_000_001, EngineCode.MEDIA_TOO_BIG),
    ],
)
def test_what_is_no_whole_jpeg_has_its_code(ask, content, code):
    with pytest.raises(EngineError) as refusal:
        ask(content)
    assert refusal.value.code is code


def test_another_kind_of_picture_is_refused(ask):
    out = io.BytesIO()
    Image.new("RGB", (9, 9)).save(out, "PNG")
    with pytest.raises(EngineError) as refusal:
        ask(out.getvalue())
    assert refusal.value.code is EngineCode.MEDIA_UNSUPPORTED
