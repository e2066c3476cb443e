import itertools

import pytest

from engine.perception.labparse import judge
from engine.perception.labunit import clean_unit, is_incomplete, is_unit, same_unit, split_unit

UNITS = [
    *("10^9/L", "×10⁹/L", "10*9/L", "x10^12/L", "10E9/L", "10^3/μL", "K/uL", "/HPF", "个/μL"),
    *("mmol/L", "µmol/L", "μmol/L", "umol/L", "g/L", "mg/dL", "ng/mL", "pg/mL", "U/L", "IU/mL"),
    *("mIU/L", "uIU/mL", "%", "‰", "fL", "pg", "s", "秒", "mm/h", "mmHg", "mOsm/kg", "S/CO"),
    *("mL/min/1.73m²", "mEq/L", "copies/mL", "kPa", "℃", "g", "min"),
]


@pytest.mark.parametrize("text", UNITS)
def test_units_are_recognised(text):
    assert is_unit(text)


@pytest.mark.parametrize("text", ["", "5.6", "3-5", "H", "↑", "Glucose", "01/02", "/", "Sodium"])
def test_what_is_no_unit(text):
    assert not is_unit(text)


@pytest.mark.parametrize(
    "text", ["10⁹/L", "10^9/L", "10*9/L", "10E9/L", "10°9/L", "109/L", "10~9/L"]
)
def test_all_spellings_of_a_power_become_one(text):
    assert clean_unit(text) == "10^9/L"
    assert clean_unit("×" + text) == "×10^9/L"


@pytest.mark.parametrize(
    ("read", "unit"),
    [("UL", "U/L"), ("IUL", "IU/L"), ("mmolL", "mmol/L"), ("mgdL", "mg/dL"), ("gL", "g/L")]
    + [(unit, unit) for unit in ("uL", "mL", "fL", "dL", "mol", "pg", "g")],
)
def test_a_slash_that_was_lost_comes_back(read, unit):
    """Four of 840 rows of blurred sheets had "UL" for "U/L"."""
    assert clean_unit(read) == unit


@pytest.mark.parametrize(
    "spellings",
    [
        ["10^9/L", "×10⁹/L", "x10*9/L", "10E9/L", "10^3/µL", "K/uL"],
        ["µmol/L", "μmol/L", "umol/L", "UMOL/L"],
        ["U/L", "IU/L", "lU/L"],
        ["ug/L", "μg/L", "ng/mL", "mcg/L"],
    ],
)
def test_spellings_of_one_amount_are_the_same(spellings):
    for one, other in itertools.combinations(spellings, 2):
        assert same_unit(one, other), (one, other)


@pytest.mark.parametrize(("one", "other"), [("mg/dL", "mmol/L"), ("g/L", "g/dL"), ("%", "10^9/L")])
def test_other_amounts_are_not(one, other):
    assert not same_unit(one, other) and same_unit(one, "")


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("5.6 mmol/L", "5.6", "mmol/L"),
        ("5.6mmol/L", "5.6", "mmol/L"),
        ("3.5-9.5×10⁹/L", "3.5-9.5", "×10^9/L"),
        ("3.5-9.5 10^9/L", "3.5-9.5", "10^9/L"),
        ("45 %", "45", "%"),
        ("13-17 M", "13-17 M", ""),
        ("7.9 L", "7.9 L", ""),
        ("5.6", "5.6", ""),
    ],
)
def test_a_unit_behind_numbers_comes_off(text, number, unit):
    assert split_unit(text) == (number, unit)


@pytest.mark.parametrize(
    ("text", "is_so"), [("10/L", True), ("×10°/L", True), ("10^9/L", False), ("10/HPF", False)]
)
def test_a_power_that_was_lost_is_noticed(text, is_so):
    """The recogniser reads "×10⁹/L" as "×10/L"."""
    assert is_incomplete(text) is is_so


def test_a_range_in_another_unit_is_not_compared():
    """110 mg/dL beside "3.9-6.1 mmol/L" would be eighteen times too high."""
    made = judge("110", "3.9-6.1 mmol/L", unit="mg/dL")
    assert (made.flag, made.doubt) == ("unknown", "unit")
    assert judge("7.9", "3.9-6.1 mmol/L", unit="mmol/L").flag == "high"
