"""Small pictures for a page, and gray frames as they are seen."""

import io
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image

from engine.perception.dicomlook import encode_gray
from engine.perception.voi import Gray, Window
from server.export.stills import SIDE_PX, FrameHeader, shade, small

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/gray.json").read_text(encoding="utf-8"))
NOISE = Image.fromarray(np.random.default_rng(1).integers(0, 256, (200, 600, 3), np.uint8))


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_shades_are_those_of_the_golden_vectors(case):
    told = {**case["gray"], "width": 1, "height": 1, "sample": case["sample"]}
    header = msgspec.convert(told, FrameHeader)
    samples = np.array(case["samples"], dtype=case["sample"])
    assert shade(samples, header).tolist() == case["shades"]


def test_a_gray_frame_as_the_decoder_writes_it_is_shaded():
    samples = np.arange(256, dtype=np.int16).reshape(16, 16) - 128
    gray = Gray(windows=(Window(center=0, width=100, name="w"),), invert=True)
    content, kind = small(encode_gray(samples, gray))
    assert kind == "image/png"
    shown = np.asarray(Image.open(io.BytesIO(content)).convert("L"))
    assert shown[0, 0] == 255 and shown[15, 15] == 0


def encoded(picture, form):
    stream = io.BytesIO()
    picture.save(stream, form)
    return stream.getvalue()


def test_what_is_small_stays_as_it_is_and_what_is_big_becomes_small():
    as_it_is = encoded(Image.new("RGB", (30, 20)), "JPEG")
    assert small(as_it_is) == (as_it_is, "image/jpeg")
    content, kind = small(encoded(NOISE.resize((3000, 1000)), "PNG"))
    assert kind == "image/jpeg"
    assert Image.open(io.BytesIO(content)).size == (SIDE_PX, 533)


def test_webp_which_old_readers_lack_is_made_another():
    assert small(encoded(Image.new("RGB", (30, 20)), "WEBP"))[1] == "image/png"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no picture",
        b"\xff\xff\xff\xff" * 9,
        encoded(NOISE, "PNG")[:-900],
        encode_gray(np.zeros((4, 4), np.int16), Gray(windows=(Window(center=0, width=9),)))[:-9],
        encode_gray(np.zeros((4, 4), np.int16), Gray()),
    ],
)
def test_what_is_no_picture_is_none(content):
    assert small(content) is None
