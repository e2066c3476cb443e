"""Numbers, units, names and out-of-range values in the answer, tied to their boxes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Box, LabRow, Seen, TextRow
from engine.text.spans import SpanFinder


def lab(row_id, analyte, value, flag="normal", y=0.0, **fields):
    box = Box(10, y, 400, 20)
    cells = {"value": Box(200, y, 50, 20)}
    defaults = {"unit": "mmol/L", "range": "3.9-6.1", "cells": cells}
    return LabRow(
        media="m", id=row_id, box=box, analyte=analyte, value=value, flag=flag, **defaults | fields
    )


SHEET = Seen(
    media="m",
    name="sheet.png",
    path="",
    media_type="image/png",
    width=800,
    height=600,
    lab_rows=(
        lab("r1", "Glucose", "11.2", "high", 0),
        lab("r2", "糖化血红蛋白", "7.2", "high", 30, unit="%"),
        lab("r3", "Sodium", "140", "normal", 60),
        lab("r4", "Total cholesterol", "5.0", "normal", 90),
        lab("r5", "Urea", "5.0", "normal", 120),
    ),
    text_rows=(
        TextRow(media="m", id="t1", box=Box(0, 300, 90, 20), text="Dr. Chen", score=0.9),
        TextRow(media="m", id="t2", box=Box(12, 2, 60, 15), text="Glucose", score=0.9),
    ),
)
ANSWER = (
    "Glucose is 11.2 mmol/L, 糖化血红蛋白 7.2% too. Urea 5.0, sodium 140. See Dr. Chen, 5 < 10."
)


def found(pieces):
    finder = SpanFinder([SHEET])
    spans, links = [], []
    for piece in pieces:
        more, tied = finder.push(piece)
        spans += more
        links += tied
    more, tied = finder.push("", final=True)
    return spans + more, links + tied


def told(spans, kind):
    return [ANSWER[s.start : s.end] for s in spans if s.kind == kind]


def test_each_kind_of_span_is_found():
    spans, _ = found([ANSWER])
    assert told(spans, "out_of_range") == ["11.2", "7.2"]
    assert told(spans, "unit") == ["mmol/L", "%"]
    assert told(spans, "number") == ["5.0", "140", "5", "10"]
    assert told(spans, "entity") == ["Glucose", "糖化血红蛋白", "Urea", "sodium", "Dr. Chen"]


def test_names_and_values_are_tied_to_the_row_and_the_cell_they_speak_of():
    _, links = found([ANSWER])
    tied = [(ANSWER[x.start : x.end], x.target.observation, x.box) for x in links]
    assert ("Glucose", "r1", Box(10, 0, 400, 20)) in tied
    assert ("11.2", "r1", Box(200, 0, 50, 20)) in tied
    assert ("Dr. Chen", "t1", Box(0, 300, 90, 20)) in tied


def test_a_value_that_two_rows_share_belongs_to_the_one_just_named():
    _, links = found([ANSWER])
    assert [x.target.observation for x in links if ANSWER[x.start : x.end] == "5.0"] == ["r5"]
    _, unnamed = found(["It is 5.0 today"])
    assert unnamed == []


def test_a_number_that_happens_to_be_a_value_of_another_row_points_nowhere():
    """A model that lists "(range 140 - 150)" behind glucose does not speak of sodium's 140."""
    for answer in (
        "Glucose 11.2 mmol/L (range 140 - 150).",
        "The range is 140 - 150.",
        "Glucose is high.\n140 people have this.",
        "Glucose 11.2 rose, 11.2 times.",
    ):
        _, links = found([answer])
        told = [(answer[x.start : x.end], x.target.observation) for x in links]
        assert [each for each in told if each[0] == "140"] == []
        assert [each for each in told if each[0] == "11.2"] in ([("11.2", "r1")], [])


def test_a_value_with_its_unit_needs_no_name_when_it_is_the_only_one():
    assert [x.target.observation for x in found(["It is 140 mmol/L."])[1]] == ["r3"]
    assert found(["It is 140 g/L."])[1] == []


@given(cuts=st.lists(st.integers(1, len(ANSWER) - 1), max_size=30))
def test_any_chunking_finds_the_same(cuts):
    edges = [0, *sorted(set(cuts)), len(ANSWER)]
    assert found([ANSWER[a:b] for a, b in zip(edges, edges[1:], strict=False)]) == found([ANSWER])


def test_a_value_is_marked_as_soon_as_the_word_behind_it_is_whole():
    finder = SpanFinder([SHEET])
    assert [span.kind for span in finder.push("Glucose 11.2 mmol/L")[0]] == ["entity"]
    assert "out_of_range" in [span.kind for span in finder.push(" ")[0]]


def test_parts_of_words_and_versions_are_no_numbers():
    spans, _ = found(["HbA1c and B12 and 3x and abc5"])
    assert spans == []


def test_a_column_heading_is_no_place_to_point_at():
    heading = TextRow(media="m", id="h", box=Box(0, 0, 9, 9), text="Result", score=0.9)
    seen = Seen(
        media="m", name="n", path="", media_type="", width=9, height=9, text_rows=(heading,)
    )
    assert SpanFinder([seen]).push("The result is fine", final=True) == ([], [])


@pytest.mark.parametrize(
    ("sheet", "answer"),
    [("µ-globulin", "μ-globulin"), ("Serum", "ſerum"), ("weiß", "WEISS"), ("INR i", "İNR i")],
)
def test_a_letter_with_a_second_form_never_ends_the_answer(sheet, answer):
    """The sheet had a micro sign, the answer a mu: the pattern matched and the look-up failed."""
    finder = SpanFinder([msgspec.structs.replace(SHEET, lab_rows=(lab("r1", sheet, "1"),))])
    spans, links = finder.push(f"The {answer} is high.", final=True)
    assert [(span.start, span.end) for span in spans] == [(4, 4 + len(answer))]
    assert len(links) == (answer != "İNR i")
