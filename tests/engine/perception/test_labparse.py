from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.perception.labparse import (
    clean_unit,
    decide,
    is_mark,
    needs_second_look,
    parse_number,
    parse_range,
    split_mark,
    with_points,
)

numbers = st.decimals(min_value=0, max_value=99_999, places=2)
dashes = st.sampled_from(["-", "–", "—", "~", "～", " - ", " – ", "−", "至", " to "])


@given(value=numbers, one=numbers, other=numbers, dash=dashes)
def test_the_flag_is_what_arithmetic_says(value, one, other, dash):
    low, high = sorted((one, other))
    expected = "low" if value < low else "high" if value > high else "normal"
    assert decide(str(value), f"{low}{dash}{high}") == expected


@given(value=numbers, bound=numbers, sign=st.sampled_from(["<", "≤", "<=", "＜", "< "]))
def test_an_upper_bound_alone(value, bound, sign):
    assert decide(str(value), f"{sign}{bound}") == ("high" if value > bound else "normal")


@given(value=numbers, bound=numbers, sign=st.sampled_from([">", "≥", ">=", "＞", "> "]))
def test_a_lower_bound_alone(value, bound, sign):
    assert decide(str(value), f"{sign}{bound}") == ("low" if value < bound else "normal")


@given(bound=numbers, width=numbers)
def test_a_value_on_the_bound_is_normal(bound, width):
    text = f"{bound}-{bound + width}"
    assert decide(str(bound), text) == "normal"
    assert decide(str(bound + width), text) == "normal"


@given(number=st.decimals(min_value=0, max_value=10**9, places=1))
def test_thousands_may_be_grouped(number):
    assert parse_number(f"{number:,}") == float(number)


@given(text=st.text(max_size=20), limits=st.text(max_size=20))
def test_no_text_breaks_the_parsers(text, limits):
    assert decide(text, limits) in {"low", "normal", "high", "abnormal", "unknown"}
    parse_number(text)
    split_mark(text)
    clean_unit(text)


@given(text=st.text(alphabet="0123456789.,- <>~", max_size=14))
def test_a_range_that_parses_is_in_order(text):
    limits = parse_range(text)
    assert limits is None or limits.low <= limits.high


@given(numbers)
def test_a_number_is_read_exactly(number):
    assert parse_number(str(number)) == float(Decimal(str(number)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1,23",
        "1,2345",
        "12,34.5",
        "5.6.7",
        "1O.5",
        "5,6",
        "abc",
        "1e5",
        "nan",
        "inf",
        "١٢",
        "²",
    ],
)
def test_what_is_not_surely_a_number_is_none(text):
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("3.5-9.5", 3.5, 9.5),
        ("(3.5 - 9.5)", 3.5, 9.5),
        ("[1,234.5–2,000]", 1234.5, 2000),
        ("3.9～6.1 mmol/L", 3.9, 6.1),
        ("4.0-10.0 10^9/L", 4.0, 10.0),
        ("40-50%", 40, 50),
        ("-3 - 3", -3, 3),
        ("-3--1", -3, -1),
    ],
)
def test_ranges_as_sheets_print_them(text, low, high):
    limits = parse_range(text)
    assert limits is not None and (limits.low, limits.high) == (low, high)


@pytest.mark.parametrize(
    "text",
    ["", "-", "9.5-3.5", "350", "3.5 9.5", "M 13-17 F 12-15", "13-17 M", "see note", "3-5-7"],
)
def test_a_range_that_is_not_certain_is_none(text):
    assert parse_range(text) is None
    assert decide("5", text) == "unknown"


@pytest.mark.parametrize(
    ("value", "limits", "flag"),
    [
        ("Negative", "Negative", "normal"),
        ("阴性", "阴性", "normal"),
        ("阴性(-)", "阴性", "normal"),
        ("-", "阴性", "normal"),
        ("Positive", "Negative", "abnormal"),
        ("阳性", "阴性", "abnormal"),
        ("1+", "Negative", "abnormal"),
        ("Yellow", "Negative", "unknown"),
        ("0.5", "Negative", "unknown"),
        ("Negative", "0-5", "unknown"),
    ],
)
def test_words_are_compared_as_words(value, limits, flag):
    assert decide(value, limits) == flag


@pytest.mark.parametrize(
    ("value", "limits", "flag"),
    [
        ("<0.1", "0.3-1.2", "low"),
        ("<0.3", "0.3-1.2", "low"),
        ("<0.5", "0.3-1.2", "unknown"),
        (">1000", "0-500", "high"),
        (">100", "0-500", "unknown"),
        ("<5", "<5", "normal"),
        ("<10", "<5", "unknown"),
    ],
)
def test_a_value_beyond_what_could_be_measured_is_decided_only_when_certain(value, limits, flag):
    assert decide(value, limits) == flag


@pytest.mark.parametrize(
    ("text", "value", "mark"),
    [
        ("7.9 H", "7.9", "H"),
        ("7.9↑", "7.9", "↑"),
        ("↓ 2.1", "2.1", "↓"),
        ("L 2.1", "2.1", "L"),
        ("5.6", "5.6", ""),
        ("HbA1c", "HbA1c", ""),
    ],
)
def test_a_mark_beside_the_value_is_no_part_of_it(text, value, mark):
    assert split_mark(text) == (value, mark)


@pytest.mark.parametrize("text", ["H", "l", "↑", "＊", "High", "偏高"])
def test_marks_are_known(text):
    assert is_mark(text)


@pytest.mark.parametrize(
    ("read", "unit"),
    [
        ("mlU/L", "mIU/L"),
        ("μlU/mL", "μIU/mL"),
        ("lU/L", "IU/L"),
        ("10°9/L", "10^9/L"),
        ("10*12/L", "10^12/L"),
        ("109/L", "10^9/L"),
        ("10^9/L", "10^9/L"),
        ("mmol/L", "mmol/L"),
        ("ml/min", "ml/min"),
        ("umol/L", "umol/L"),
    ],
)
def test_units_that_no_sheet_prints_are_mended(read, unit):
    assert clean_unit(read) == unit


@pytest.mark.parametrize(
    ("value", "limits", "flag"),
    [
        ("1,005", "1.003-1.030", "unknown"),
        ("1.050", "1.003-1,030", "unknown"),
        ("1,250", "125-350", "high"),
        ("1,250", "900-1,100", "high"),
        ("1.250", "30-400", "unknown"),
        ("1.250", "1.30-4.00", "low"),
        ("0.850", "1-5", "low"),
    ],
)
def test_a_mark_that_may_be_a_point_or_part_thousands_is_never_decided_wrongly(value, limits, flag):
    """A specific gravity of 1,005 in 1.003-1.030 was called high: a thousand and five."""
    assert decide(value, limits) == flag


@pytest.mark.parametrize(
    ("value", "limits", "flag"),
    [
        ("5,6", "3,5-5,1", "high"),
        ("4,1", "3,5-5,1", "normal"),
        ("1,250", "0,270-4,200", "normal"),
        ("4", "3,5-5,1", "normal"),
        ("-4,5", "-2,0 - 2,0", "low"),
        ("0,3", "<0,5", "normal"),
        ("5.6", "3,5-5,1", "unknown"),
        ("1,250", "125-350", "high"),
        ("5,6", "3-5", "unknown"),
    ],
)
def test_decimal_commas_are_read_where_the_range_leaves_no_doubt(value, limits, flag):
    assert decide(*with_points(value, limits)) == flag


@pytest.mark.parametrize(
    ("value", "limits", "doubtful"),
    [
        ("56", "3.5-9.5", True),
        ("11.2", "3.9-6.1", False),
        ("45", "3.9-6.1", True),
        ("0.56", "3.5-9.5", True),
        ("5.6", "3.5-9.5", False),
        ("150", "137-147", False),
        ("Positive", "Negative", False),
        ("9" * 400, "1-2", False),
    ],
)
def test_a_value_that_a_lost_point_could_explain_is_read_twice(value, limits, doubtful):
    assert needs_second_look(value, limits) == doubtful
