import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.perception.labnumber import (
    MarkWitness,
    certain_mark,
    is_number,
    marks_in,
    parse_number,
    plain,
    read_number,
    swapped,
)

numbers = st.decimals(min_value=0, max_value=10**8, places=2)


@given(numbers)
def test_both_ways_of_writing_a_number_are_read_under_their_mark(number):
    english = f"{number:,}"
    assert read_number(english, ".") == float(number)
    assert read_number(swapped(english), ",") == float(number)


@given(numbers)
def test_a_number_is_never_read_as_another_under_the_mark_that_it_gives_away(number):
    english = f"{number:,}"
    assert certain_mark(english) in (".", None)
    assert certain_mark(swapped(english)) in (",", None)


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("1,234.5", "."),
        ("1.234,5", ","),
        ("1,234,567", "."),
        ("1.234.567", ","),
        ("5.6", "."),
        ("5,6", ","),
        ("0.850", "."),
        ("0,850", ","),
        ("1,234", None),
        ("1.234", None),
        ("1234", None),
        ("1,23.4", None),
    ],
)
def test_what_a_number_gives_away(text, mark):
    assert certain_mark(text) == mark


def test_a_thousand_and_more_or_one_and_a_bit_are_both_numbers():
    assert (read_number("1,234", "."), read_number("1,234", ",")) == (1234, 1.234)
    assert is_number("5,6") and not is_number("5,6,7")


def test_no_group_of_thousands_begins_with_nought():
    """ "0,850" was eight hundred and fifty."""
    assert parse_number("0,850") is None and read_number("0,850", ",") == 0.85


def test_raised_digits_and_wide_forms_come_to_one_spelling():
    assert plain(" 10⁹／Ｌ ") == "10^9/L" and plain("≦５～６") == "<=5~6"


def test_the_marks_of_a_range_are_heard():
    assert marks_in("3,5 – 5,1") == {","} and marks_in("1,003-1,030") == set()


def test_a_sheet_is_known_by_a_range_or_by_two_values():
    one = MarkWitness()
    one.hear("5,6", "3-5")
    assert one.mark is None
    one.hear("7,1", "3-5")
    assert one.mark == ","
    other = MarkWitness()
    other.hear("4", "3,5-5,1")
    assert other.mark == ","
    other.hear("5.6", "")
    assert other.mark is None, "a sheet with both marks says nothing"
