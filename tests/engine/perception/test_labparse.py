from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.perception.labnumber import parse_number, swapped
from engine.perception.labparse import (
    contradicts,
    decide,
    is_mark,
    judge,
    needs_second_look,
    parse_range,
    split_mark,
)
from engine.perception.labunit import clean_unit

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
        ("3.5——9.5", 3.5, 9.5),
        ("137--147", 137, 147),
        ("4.0-10.0×10⁹/L", 4.0, 10.0),
        ("(3.5-9.5) mmol/L", 3.5, 9.5),
        ("3.5 至 9.5", 3.5, 9.5),
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
    assert decide(value, limits) == flag


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
    made = judge(value, limits)
    assert needs_second_look(made.flag, made.number, made.low, made.high) == doubtful


@pytest.mark.parametrize(
    ("limits", "low", "high"),
    [
        ("≤5.2", None, 5.2),
        ("< = 5.2", None, 5.2),
        ("up to 5.2", None, 5.2),
        ("less than 5.2", None, 5.2),
        ("小于5.2", None, 5.2),
        ("5.2以下", None, 5.2),
        ("不超过5.2", None, 5.2),
        ("≥60", 60, None),
        ("＞60 mL/min", 60, None),
        ("60 or more", 60, None),
        ("60以上", 60, None),
        ("大于60", 60, None),
    ],
)
def test_bounds_of_one_side(limits, low, high):
    made = judge("60", limits)
    assert (made.low, made.high) == (low, high)
    on_bound = str(low if low is not None else high)
    assert decide(on_bound, limits) == "normal"


@pytest.mark.parametrize("limits", ["-5.2", "5.2-", "5.2", "M<5 F<4", "男:130-175 女:115-150"])
def test_a_range_that_may_mean_two_things_is_doubted(limits):
    made = judge("7", limits)
    assert (made.flag, made.doubt, made.number) == ("unknown", "range", 7)


def test_no_range_is_no_doubt():
    assert judge("7", "").doubt is None and judge("7", "-").doubt is None


@pytest.mark.parametrize(
    ("value", "limits", "flag"),
    [("≤0.3", "0.3-1.2", "unknown"), ("≥500", "0-500", "unknown"), (">500", "0-500", "high")],
)
def test_at_most_the_bound_may_be_the_bound(value, limits, flag):
    """ "≤0.3" was called low in 0.3-1.2, where 0.3 itself is normal."""
    assert decide(value, limits) == flag


@pytest.mark.parametrize(
    ("value", "limits", "sheet_mark", "flag", "number", "doubt"),
    [
        ("1,234", "2-5", None, "unknown", None, "separator"),
        ("1,234", "2-5", ",", "low", 1.234, None),
        ("1,234", "2-5", ".", "high", 1234, None),
        ("1,234", "1-5", ".", "unknown", None, "separator"),
        ("1.234", "2-5", ".", "low", 1.234, None),
        ("1.234", "2-5", None, "unknown", None, "separator"),
        ("1.234", "2-5", ",", "high", 1234, None),
        ("1.234,5", "1.000,0-2.000,0", None, "normal", 1234.5, None),
        ("1.234,5", "900-1.100", None, "high", 1234.5, None),
        ("1,234.5", "900-1,100", None, "high", 1234.5, None),
        ("1,234.5", "125-350", None, "high", 1234.5, None),
        ("5,6", "3-5", ",", "high", 5.6, None),
        ("5,6", "3-5", None, "unknown", None, "separator"),
        ("5.6", "3-5", ",", "unknown", None, "separator"),
        ("5,6", "3.5-5.1", None, "unknown", None, "separator"),
        ("1.020", "1.003-1.030", None, "normal", None, "separator"),
        ("1.020", "1.003-1.030", ".", "normal", 1.02, None),
        ("1250", "1,000-2,000", None, "unknown", None, "separator"),
        ("1250", "1,000-2,000", ".", "normal", 1250, None),
        ("1.25", "1,003-1,030", None, "unknown", None, "separator"),
    ],
)
def test_a_separator_is_read_as_row_and_sheet_say_or_doubted(
    value, limits, sheet_mark, flag, number, doubt
):
    made = judge(value, limits, sheet_mark=sheet_mark)
    assert (made.flag, made.number, made.doubt) == (flag, number, doubt)


def written(number, mark, is_grouped):
    english = f"{number:,}" if is_grouped else str(number)
    return english if mark == "." else swapped(english)


fine = st.decimals(min_value=0, max_value=99_999, places=3)


@settings(max_examples=500)
@given(
    value=fine,
    one=fine,
    other=fine,
    mark=st.sampled_from(".,"),
    is_grouped=st.booleans(),
    places=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    knows=st.booleans(),
)
def test_whatever_the_mark_a_flag_that_is_said_is_true(
    value, one, other, mark, is_grouped, places, knows
):
    value = round(value, places[0])
    low, high = sorted(round(number, places[1]) for number in (one, other))
    # Under a hundredth of its bound a number is taken for the thousandfold.
    assume(knows or value * 100 > low)
    texts = [written(number, mark, is_grouped) for number in (value, low, high)]
    made = judge(texts[0], f"{texts[1]}-{texts[2]}", sheet_mark=mark if knows else None)
    true = "low" if value < low else "high" if value > high else "normal"
    assert made.flag in (true, "unknown")
    assert made.number in (float(value), None)
    assert (made.flag == "unknown") <= (made.doubt == "separator")


@pytest.mark.parametrize(
    ("text", "value", "mark"),
    [
        ("7.9 (H)", "7.9", "H"),
        ("7.9▲", "7.9", "↑"),
        ("⬇ 2.1", "2.1", "↓"),
        ("7.9 High", "7.9", "High"),
        ("阳性 *", "阳性", "*"),
        ("H >1000", ">1000", "H"),
        ("1+ H", "1+", "H"),
    ],
)
def test_more_marks_beside_values(text, value, mark):
    assert split_mark(text) == (value, mark)


@pytest.mark.parametrize(
    ("mark", "flag", "is_contradiction"),
    [
        ("H", "high", False),
        ("↑", "low", True),
        ("L", "normal", True),
        ("*", "high", False),
        ("*", "normal", True),
        ("N", "low", True),
        ("正常", "normal", False),
        ("H", "unknown", False),
        ("H", "abnormal", False),
        ("see note", "normal", False),
    ],
)
def test_a_printed_mark_may_contradict(mark, flag, is_contradiction):
    assert contradicts(mark, flag) is is_contradiction
