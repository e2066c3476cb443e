"""Values, reference ranges and marks of lab sheets, and the flag; nothing is ever guessed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from engine.api import Doubt, Flag
from engine.perception.labnumber import (
    MARKS,
    NUMBER,
    ONE_GROUP,
    DecimalMark,
    is_number,
    plain,
    read_number,
    swapped,
    to_float,
)
from engine.perception.labunit import same_unit, split_unit
from engine.perception.labwords import Grades, grade_range, grades_of

_OTHER: dict[DecimalMark, DecimalMark] = {".": ",", ",": "."}

_UNDER = r"<=?|upto|lessthan|below|小于等于|小于|低于|不超过|不大于"
_OVER = r">=?|greaterthan|morethan|above|atleast|over|大于等于|大于|高于|不低于|不小于"
_BETWEEN = {
    mark: re.compile(rf"({number})(?:-|~|to|至|到)({number})") for mark, number in NUMBER.items()
}
_BOUND = {
    mark: re.compile(rf"(?:({_UNDER})|({_OVER}))({number})") for mark, number in NUMBER.items()
}
_BOUND_BEHIND = {
    mark: re.compile(rf"({number})(?:(及?以下|orless|orbelow)|(及?以上|ormore|orabove))")
    for mark, number in NUMBER.items()
}
_CENSORED = {mark: re.compile(rf"([<>]=?)({number})") for mark, number in NUMBER.items()}

FLAG_MARKS = {"h", "l", "hh", "ll", "high", "low", "*", "**", "↑", "↓", "↑↑", "↓↓", "a", "偏高"}
FLAG_MARKS |= {
    "偏低",
    "高",
    "低",
    "n",
    "normal",
    "正常",
    "异常",
    "abnormal",
    "h*",
    "l*",
    "↑*",
    "↓*",
}
_HIGH_MARKS = {"h", "hh", "high", "↑", "↑↑", "偏高", "高", "h*", "↑*"}
_LOW_MARKS = {"l", "ll", "low", "↓", "↓↓", "偏低", "低", "l*", "↓*"}
_NORMAL_MARKS = {"n", "normal", "正常"}
_ARROWS = str.maketrans(dict.fromkeys("⬆⇧⇑▲△", "↑") | dict.fromkeys("⬇⇩⇓▼▽", "↓"))
_MARK = r"HH|LL|High|Low|[HL]\*?|\*+|↑+\*?|↓+\*?|偏高|偏低|高|低"
_MARK_AT_END = re.compile(rf"^(.*[\d+)性])\s*(?:({_MARK})|[(\[]({_MARK})[)\]])$")
_MARK_AT_START = re.compile(rf"^(?:({_MARK})|[(\[]({_MARK})[)\]])\s*([<>]?=?\s?\d.*)$")


@dataclass(frozen=True)
class Range:
    """A reference range; a missing bound is infinite. `grades` is set for one in words."""

    low: float = -math.inf
    high: float = math.inf
    grades: Grades | None = None


@dataclass(frozen=True)
class Value:
    """A measured value lies in `[low, high]`: one point unless the sheet says "<x" or ">x".

    `is_open` says that the finite bound itself is not meant: "<5" but not "≤5".
    """

    low: float
    high: float
    is_open: bool = False


@dataclass(frozen=True)
class Judgement:
    """What one row says; `doubt` names what could not be read with certainty."""

    flag: Flag = "unknown"
    doubt: Doubt | None = None
    number: float | None = None
    low: float | None = None
    high: float | None = None


def parse_value(text: str, mark: DecimalMark = ".") -> Value | None:
    """Return where the value lies; `None` when it is no number."""
    number = read_number(text, mark)
    if number is not None:
        return Value(number, number)
    censored = _CENSORED[mark].fullmatch(plain(text).replace(" ", ""))
    if censored is None:
        return None
    bound, is_open = to_float(censored[2], mark), not censored[1].endswith("=")
    if censored[1].startswith("<"):
        return Value(-math.inf, bound, is_open)
    return Value(bound, math.inf, is_open)


def parse_range(text: str, mark: DecimalMark = ".") -> Range | None:
    """Return the range; `None` when it cannot be read with certainty."""
    # Chinese sheets print the dash of two letters' width.
    spelled = plain(text.replace("——", "~"))
    if grades := grade_range(spelled):
        return Range(grades=grades)
    spelled = re.sub(r"^[(\[](.*)[)\]]$", r"\1", spelled).strip()
    for candidate in (spelled, split_unit(spelled)[0]):
        compact = re.sub(r"\s+", "", candidate).lower()
        compact = re.sub(r"^[(\[](.*)[)\]]$", r"\1", compact)
        if between := _BETWEEN[mark].fullmatch(compact):
            if _mixes_marks(between.groups()):
                return None
            low, high = (to_float(bound, mark) for bound in between.groups())
            # "137--147" has a long dash: no range goes from 137 down to -147.
            high = -high if low > high and "--" in compact else high
            return Range(low, high) if low <= high else None
        if bound := _BOUND[mark].fullmatch(compact):
            limit = to_float(bound[3], mark)
            return Range(high=limit) if bound[1] else Range(low=limit)
        if bound := _BOUND_BEHIND[mark].fullmatch(compact):
            limit = to_float(bound[1], mark)
            return Range(high=limit) if bound[2] else Range(low=limit)
    return None


def _mixes_marks(bounds: tuple[str, ...]) -> bool:
    """Whether one of both marks of "1.003-1,030" was read wrongly, or printed so."""
    marks = ["".join(mark for mark in ".," if mark in bound) for bound in bounds]
    return any(ONE_GROUP.fullmatch(bound) for bound in bounds) and set(marks) >= {".", ","}


# -- the flag ------------------------------------------------------------------------------------


def decide(value_text: str, range_text: str) -> Flag:
    """Return the flag of a row that stands alone."""
    return judge(value_text, range_text).flag


def judge(
    value_text: str, range_text: str, *, unit: str = "", sheet_mark: DecimalMark | None = None
) -> Judgement:
    """Compare value and range; a value on the bound is normal.

    Where a mark may be a decimal point or part thousands, both readings are made, and a flag is
    said only when they agree or `sheet_mark` and the row leave one of them.
    """
    value, limits = plain(value_text), plain(range_text)
    if not limits or limits in ("-", "--", "/"):
        return _alone(value, sheet_mark)
    if grade_range(limits) is not None or not any(parse_range(limits, mark) for mark in MARKS):
        flag, doubt = _in_words(value, limits)
        return replace(_alone(value, sheet_mark), flag=flag, doubt=doubt)
    if not same_unit(unit, split_unit(limits)[1]):
        return replace(_alone(value, sheet_mark), doubt="unit")
    readings = {mark: made for mark in MARKS if (made := _reading(value, limits, mark)) is not None}
    if sheet_mark is not None and readings:
        if sheet_mark not in readings:
            return Judgement(doubt="separator")
        readings = {sheet_mark: readings[sheet_mark]}
    return _chosen(value, limits, readings, sheet_mark)


def _alone(value: str, sheet_mark: DecimalMark | None) -> Judgement:
    """Return the number of a value that has no range to be compared with."""
    numbers = {
        read_number(value, mark) for mark in (MARKS if sheet_mark is None else (sheet_mark,))
    }
    numbers.discard(None)
    if len(numbers) == 1:
        return Judgement(number=numbers.pop())
    return Judgement(doubt="separator" if numbers else None)


def _in_words(value: str, limits: str) -> tuple[Flag, Doubt | None]:
    allowed, found = grade_range(limits), grades_of(value)
    if allowed is None:
        # "Yellow" where "Yellow" is normal; of other words nobody knows what they mean.
        is_same = value.lower() == limits.lower() and any(map(str.isalpha, value))
        return ("normal", None) if is_same else ("unknown", "range")
    if found is None:
        return "unknown", "value"
    if allowed[0] <= found[0] and found[1] <= allowed[1]:
        return "normal", None
    if found[1] < allowed[0] or found[0] > allowed[1]:
        return "abnormal", None
    return "unknown", "value"


def _reading(value_text: str, range_text: str, mark: DecimalMark) -> Judgement | None:
    """Return what the row says under one decimal mark; `None` when it cannot be written so."""
    value, limits = parse_value(value_text, mark), parse_range(range_text, mark)
    if value is None or limits is None:
        return None
    return Judgement(
        flag=_compared(value, limits),
        number=value.low if value.low == value.high else None,
        low=limits.low if limits.low > -math.inf else None,
        high=limits.high if limits.high < math.inf else None,
    )


def _compared(value: Value, limits: Range) -> Flag:
    if value.low >= limits.low and value.high <= limits.high:
        return "normal"
    # "<5" says less than 5, so against a lower bound of 5 it is low though the bound is not.
    if value.high < limits.low or (value.is_open and value.high == limits.low):
        return "low"
    if value.low > limits.high or (value.is_open and value.low == limits.high):
        return "high"
    return "unknown"


def _chosen(
    value: str,
    limits: str,
    readings: dict[DecimalMark, Judgement],
    sheet_mark: DecimalMark | None,
) -> Judgement:
    """Choose among the readings that the row allows; with none or several, say the doubt."""
    if not readings:
        return _unreadable(value, limits)
    if len(set(readings.values())) > 1:
        point, comma = readings["."], readings[","]
        if _is_far_below(comma) and (point.low, point.high) == (comma.low, comma.high):
            return point
        # The flag may be the same under both; the number is not.
        flag = point.flag if point.flag == comma.flag else "unknown"
        return Judgement(flag=flag, doubt="separator")
    mark, judged = next(iter(readings.items()))
    is_settled = sheet_mark == mark or parse_range(limits, _OTHER[mark]) is None
    # "5,6" beside "3-5": a comma on the value alone may be a point that was read wrongly.
    is_lone_comma = mark == "," and len(readings) == 1 and "." not in value and not is_settled
    if is_lone_comma or not _is_one_story(value, limits, mark, judged, is_settled):
        return replace(judged, flag="unknown", doubt="separator", number=None)
    return judged


def _is_far_below(reading: Judgement) -> bool:
    """Whether the value is under a hundredth of its lower bound: 1.250 in 125-350 is not meant."""
    return bool(reading.low and reading.number is not None and reading.number <= reading.low / 100)


def _is_one_story(
    value: str, limits: str, mark: DecimalMark, judged: Judgement, is_settled: bool
) -> bool:
    """Whether "1,005" stays out of range, or is not so at all, when its mark means the other."""
    if judged.flag not in ("low", "high"):
        return True
    if not is_settled:
        turned = _reading(value, swapped(limits), mark)
        if turned is not None and turned.flag != judged.flag:
            return False
    if not ONE_GROUP.fullmatch(value):
        return True
    if is_settled and mark in value:
        return True
    other = _reading(swapped(value), limits, mark)
    if other is None or other.flag == judged.flag or _is_far_below(other):
        return True
    # A settled mark leaves only the fault of reading that would call a normal value abnormal.
    return is_settled and other.flag != "normal"


def _unreadable(value: str, limits: str) -> Judgement:
    """Name what is in the way, with the bounds where they are certain."""
    ranges = [found for mark in MARKS if (found := parse_range(limits, mark)) is not None]
    is_value = any(parse_value(value, mark) for mark in MARKS)
    certain = ranges[0] if len(set(ranges)) == 1 else Range()
    return Judgement(
        doubt="separator" if is_value else "value",
        low=certain.low if certain.low > -math.inf else None,
        high=certain.high if certain.high < math.inf else None,
    )


def needs_second_look(
    flag: Flag, number: float | None, low: float | None, high: float | None
) -> bool:
    """Whether a decimal point lost or won by the reader could have made the value abnormal."""
    if number is None or flag not in ("low", "high"):
        return False
    bottom, top = -math.inf if low is None else low, math.inf if high is None else high
    shifted = (number * 10.0**power for power in (-3, -2, -1, 1, 2, 3))
    return any(bottom <= other <= top for other in shifted)


# -- what a cell could be ------------------------------------------------------------------------


def split_mark(text: str) -> tuple[str, str]:
    """Part a mark printed in the value's cell ("7.9 H", "↑ 7.9") from the value."""
    spelled = text.strip().translate(_ARROWS)
    if found := _MARK_AT_END.match(spelled):
        return found[1].strip(), found[2] or found[3]
    if found := _MARK_AT_START.match(spelled):
        return found[3].strip(), found[1] or found[2]
    return text.strip(), ""


def contradicts(mark_text: str, flag: Flag) -> bool:
    """Whether a mark that the sheet prints says something else than the flag."""
    mark = plain(mark_text.translate(_ARROWS)).lower()
    if flag == "unknown" or mark not in FLAG_MARKS:
        return False
    if mark in _NORMAL_MARKS:
        return flag != "normal"
    if flag == "abnormal":
        return False
    return flag == "normal" or mark in (_LOW_MARKS if flag == "high" else _HIGH_MARKS)


def is_value(text: str) -> bool:
    """Whether the text could be a result."""
    return any(parse_value(text, mark) for mark in MARKS) or grades_of(text) is not None


def is_range(text: str) -> bool:
    """Whether the text could be a reference range and not a plain value."""
    return not is_number(text) and any(parse_range(text, mark) for mark in MARKS)


def is_mark(text: str) -> bool:
    """Whether the text is a printed flag such as "H" or an arrow."""
    return plain(text.translate(_ARROWS)).lower() in FLAG_MARKS
