"""The engine's words in the protocol's."""

from __future__ import annotations

import pytest

from engine import api
from server import translate


def lab(flag: str, number: float | None = None, **fields) -> api.LabRow:
    row = {
        "media": "a",
        "id": "a.lab.1",
        "box": api.Box(1, 2, 3, 4),
        "analyte": "Glucose",
        "value": str(number),
        "unit": "mmol/L",
        "range": "3.9-6.1",
        "low": 3.9,
        "high": 6.1,
    }
    return api.LabRow(flag=flag, number=number, **{**row, **fields})


def test_every_code_of_the_engine_is_one_of_the_protocol():
    for code in api.EngineCode:
        assert translate.code(code).value == code.value


def test_rows_come_back_as_they_went():
    text = api.TextRow(media="a", id="a.1", box=api.Box(1, 2, 3, 4), text="x", score=0.5)
    row = lab("high", 11.2, cells={"value": api.Box(1, 2, 1, 1)})
    rows = (translate.row(text), translate.row(row))
    assert translate.text_rows("a", rows) == (text,)
    assert translate.lab_rows("a", rows) == (row,)


@pytest.mark.parametrize(
    ("flag", "number", "severity"),
    [
        ("high", 6.2, "warning"),
        ("high", 12.2, "critical"),
        ("low", 3.0, "warning"),
        ("low", 1.9, "critical"),
        ("abnormal", None, "warning"),
        ("normal", 5.0, None),
        ("unknown", None, None),
    ],
)
def test_values_that_are_not_normal_are_marked(flag, number, severity):
    mark = translate.out_of_range_mark("a", lab(flag, number))
    assert (mark.severity if mark else None) == severity
    if mark is not None:
        assert (mark.id, mark.observation) == ("lab:a:lab.1", "a.lab.1")


def test_a_bound_of_zero_makes_nothing_critical():
    mark = translate.out_of_range_mark("a", lab("high", 0.5, high=0.0))
    assert mark is not None and mark.severity == "warning"


def test_what_a_medical_image_says_comes_back_as_it_went():
    told = api.Imaging(
        modality="CT",
        body_part="CHEST",
        view="axial",
        laterality="left",
        pixel_spacing=(0.5, 0.75),
        window_center=40,
        window_width=400,
    )
    sent = translate.imaging(told)
    assert sent is not None and sent.pixel_spacing is not None
    assert (sent.pixel_spacing.rows, sent.pixel_spacing.columns) == (0.5, 0.75)
    assert translate.seen_imaging(sent) == told
    assert translate.imaging(None) is None and translate.seen_imaging(None) is None
