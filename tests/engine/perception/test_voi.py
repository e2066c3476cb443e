"""Gray by PS3.3 C.11.2: the very numbers that pydicom makes, which the page is held to as well."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from engine.perception.voi import Gray, Lut, Window, is_usable, shade, shades_of, whole_range

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/gray.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_w75_w77_w78_shades_are_those_of_pydicom(case):
    gray = msgspec.convert(case["gray"], Gray)
    samples = np.array(case["samples"], dtype=case["sample"])
    assert shade(samples, gray).tolist() == case["shades"]


def test_w78_a_window_of_400_at_40_gives_20_144_and_226():
    """Another viewer showed 23, 162 and 255 for these values."""
    gray = Gray(windows=(Window(center=40, width=400),))
    assert shades_of(np.array([-129.0, 65.0, 193.0]), gray).tolist() == [20, 144, 226]


def test_w75_monochrome1_is_inverted_once():
    gray = Gray(windows=(Window(center=128, width=256),))
    samples = np.arange(256, dtype=np.uint8)
    upright = shade(samples, gray)
    inverted = shade(samples, msgspec.structs.replace(gray, invert=True))
    assert upright.tolist() == list(range(256))
    assert (inverted == 255 - upright).all()


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT"])
def test_the_whole_range_runs_from_black_to_white(function):
    gray = Gray(function=function, windows=(whole_range(-1024.0, 3071.0, function),))
    assert shades_of(np.array([-1024.0, 3071.0]), gray).tolist() == [0, 255]
    flat = Gray(function=function, windows=(whole_range(7.0, 7.0, function),))
    assert shades_of(np.array([7.0]), flat).size == 1


def test_a_table_holds_its_ends_beyond_them():
    gray = Gray(lut=Lut(first=10, bits=8, entries=(5, 100, 250)))
    assert shades_of(np.array([-9.0, 10, 11, 12, 99_999]), gray).tolist() == [5, 5, 100, 250, 250]


def test_a_sigmoid_far_away_is_black_or_white_and_no_overflow():
    gray = Gray(function="SIGMOID", windows=(Window(center=0, width=0.001),))
    assert shades_of(np.array([-1e9, 1e9]), gray).tolist() == [0, 255]


@pytest.mark.parametrize(
    "width, function, usable",
    [(1, "LINEAR", True), (0.5, "LINEAR", False), (0.5, "SIGMOID", True), (0, "SIGMOID", False)],
)
def test_a_window_without_a_meaning_is_not_used(width, function, usable):
    assert is_usable(Window(center=1, width=width), function) is usable
    assert not is_usable(Window(center=float("nan"), width=9), function)
