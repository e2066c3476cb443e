import pytest

from engine.perception.labparse import decide
from engine.perception.labwords import grade_range, grades_of


@pytest.mark.parametrize(
    ("text", "grades"),
    [
        ("Negative", (0, 0)),
        ("neg.", (0, 0)),
        ("阴性（－）", (0, 0)),
        ("Not Detected", (0, 0)),
        ("Trace", (1, 1)),
        ("±", (1, 1)),
        ("+/-", (1, 1)),
        ("弱阳性", (1, 2)),
        ("+", (2, 2)),
        ("(++)", (3, 3)),
        ("3+", (4, 4)),
        ("＋＋＋＋", (5, 5)),
        ("阳性(++)", (3, 3)),
        ("Positive", (1, 5)),
        ("阴性(+)", None),
        ("Yellow", None),
        ("", None),
        ("+++++", None),
    ],
)
def test_words_and_pluses_are_grades(text, grades):
    assert grades_of(text) == grades


@pytest.mark.parametrize(
    ("text", "grades"),
    [
        ("Negative", (0, 0)),
        ("Negative - Trace", (0, 1)),
        ("阴性～±", (0, 1)),
        ("neg or trace", (0, 1)),
        ("- ~ +", (0, 2)),
        ("Positive", (1, 5)),
        ("-", None),
        ("Trace-Negative", None),
        ("3-5", None),
    ],
)
def test_references_in_words(text, grades):
    assert grade_range(text) == grades


@pytest.mark.parametrize(
    ("value", "limits", "flag"),
    [
        ("Trace", "Negative", "abnormal"),
        ("Trace", "Negative-Trace", "normal"),
        ("±", "阴性～±", "normal"),
        ("++", "- ~ +", "abnormal"),
        ("Positive", "- ~ +", "unknown"),
        ("弱阳性", "阴性", "abnormal"),
        ("Neg", "阴性", "normal"),
        ("Yellow", "yellow", "normal"),
        ("Red", "Yellow", "unknown"),
    ],
)
def test_grades_decide_only_where_they_do_not_overlap(value, limits, flag):
    assert decide(value, limits) == flag
