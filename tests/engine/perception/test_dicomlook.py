"""A look at a DICOM file: levels of the first frame, then each frame in its own file."""

import io
import json
import struct

import numpy as np
import pytest
from PIL import Image
from pydicom import dcmread

from engine.api import Detected, LevelReady, Progress
from engine.perception.dicomfile import read_dicom
from engine.perception.dicomlook import decode_dicom, encode_gray, picture_of
from engine.perception.voi import Gray, Lut, Window
from engine.perception.wire import Decode, Finished, PixelsReady
from tests.support.dicoms import gray, saved, shipped


@pytest.fixture
def look(tmp_path):
    def looking(path):
        request = Decode(
            media="m",
            path=str(path),
            derived_dir=str(tmp_path / "derived"),
            declared_type="image/png",
            max_bytes=10**9,
            max_pixels=10**8,
            max_series_pixels=10**9,
            max_ratio=2_000,
            cpu_s=60,
        )
        return list(decode_dicom(request)), tmp_path / "derived"

    return looking


def read_frame(content):
    (length,) = struct.unpack_from("<I", content)
    header = json.loads(content[4 : 4 + length])
    samples = np.frombuffer(content, f"<{np.dtype(header['sample']).str[1:]}", offset=4 + length)
    return header, samples.reshape(header["height"], header["width"])


def test_it_is_announced_then_sharpens_then_comes_frame_by_frame(look):
    answers, folder = look(shipped("examples_ybr_color.dcm"))
    first, *middle, last = answers
    assert isinstance(first, Detected) and isinstance(last, Finished)
    assert (first.media_type, first.width, first.height) == ("application/dicom", 320, 240)
    assert first.frames == 30 and first.mismatch and first.imaging.modality == "US"
    levels = [one.level for one in middle if isinstance(one, LevelReady)]
    assert levels == [16, 64, 256, 0]
    steps = [(one.done, one.total) for one in middle if isinstance(one, Progress)]
    assert steps == [(n, 30) for n in range(1, 31)]
    assert sorted(int(path.name) for path in (folder / "frames").iterdir()) == list(range(30))


def test_colour_frames_are_pictures_equal_to_the_last_bit(look):
    _, folder = look(shipped("examples_ybr_color.dcm"))
    expected = dcmread(shipped("examples_ybr_color.dcm")).pixel_array
    for number in (0, 17, 29):
        picture = Image.open(io.BytesIO((folder / "frames" / str(number)).read_bytes()))
        assert picture.format == "PNG" and (np.asarray(picture) == expected[number]).all()


def test_gray_frames_keep_all_samples_and_say_how_they_are_shown(look):
    _, folder = look(shipped("MR_small_jp2klossless.dcm"))
    header, samples = read_frame((folder / "frames" / "0").read_bytes())
    assert (samples == dcmread(shipped("MR_small.dcm")).pixel_array).all()
    assert header["windows"] == [{"center": 600.0, "width": 1600.0, "name": "Window 1"}]
    assert (header["width"], header["height"], header["sample"]) == (64, 64, "int16")


def test_the_full_level_is_the_first_frame_by_its_own_window(look):
    answers, folder = look(shipped("MR_small.dcm"))
    (full,) = (one for one in answers if isinstance(one, LevelReady) and one.level == 0)
    assert full.media_type == "image/png"
    (frame,) = read_dicom(
        str(shipped("MR_small.dcm")), max_pixels=10**6, max_series_pixels=10**6
    ).frames()
    assert (np.asarray(Image.open(full.path)) == np.asarray(picture_of(frame))).all()


def test_text_in_the_pixels_is_not_read(look):
    """Burned into such pictures is, as a rule, whom they show."""
    answers, _ = look(shipped("examples_palette.dcm"))
    assert not any(isinstance(one, PixelsReady) for one in answers)


def test_a_long_series_says_at_most_a_hundred_times_how_far_it_is(look, tmp_path):
    path = saved(gray(np.zeros((350, 4, 4), np.uint8)), tmp_path / "long.dcm")
    answers, folder = look(path)
    steps = [one.done for one in answers if isinstance(one, Progress)]
    assert len(steps) == 100 and steps[-1] == 350
    assert len(list((folder / "frames").iterdir())) == 350


@pytest.mark.parametrize("kind", ["uint8", "uint16", "int16", ">i2"])
def test_samples_begin_where_typed_arrays_may(kind):
    samples = np.array([[1, 2, 3], [4, 5, 127]]).astype(kind)
    shown = Gray(windows=(Window(center=1, width=2),), lut=Lut(first=0, bits=8, entries=(0, 255)))
    content = encode_gray(samples, shown)
    header, read = read_frame(content)
    assert (len(content) - samples.nbytes) % 8 == 0
    assert (read == samples).all() and header["lut"]["entries"] == [0, 255]
