"""Values, reference ranges and marks of lab sheets as numbers; nothing is ever guessed."""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass

from engine.api import Flag

_NUMBER = r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?"
_NUMBER_ONLY = re.compile(_NUMBER)
_CENSORED = re.compile(rf"([<>]=?)({_NUMBER})")
_BETWEEN = re.compile(rf"({_NUMBER})(?:-|~|to|至)({_NUMBER})")
_BOUND = re.compile(rf"([<>]=?)({_NUMBER})")
# A unit behind a range: "3.5-9.5 10^9/L", "<5.2mmol/L", "35-45 %". A bare letter is none: "13-17 M"
# speaks of men.
_RANGE_UNIT = re.compile(
    r"(?<=\d)(?:\s+10[\^*x]?\d*/\S+|\s*[A-Za-zμ%][\w%.*^]*/\S+|\s*(?:%|fl|pg|s|sec|mmhg))$",
    re.IGNORECASE,
)

# Commas that no thousands have: "5,6", "0,850"; and what shows that commas part thousands.
_DECIMAL_COMMA = re.compile(r"(?<![\d,.])(?:\d+,(?:\d{1,2}|\d{4,})|0\d*,\d+)(?![\d,.])")
_NO_DECIMAL_COMMA = re.compile(r"\d\.\d|,\d+,")
_ONE_GROUP = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
_POINT = re.compile(r"(?<![\d,])\d+\.\d")
_POINT_OR_GROUP = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}")

# A raised digit behind a value points to a footnote: NFKC would make 5.62 of "5.6²".
_RAISED = str.maketrans({raised: f"^{digit}" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")})
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—―−﹣", "-"))
_SIGNS = str.maketrans({"≤": "<=", "≥": ">=", "⩽": "<=", "⩾": ">=", "≦": "<=", "≧": ">=", "∼": "~"})

_NEGATIVE = {"negative", "neg", "neg.", "阴性", "(-)", "-", "阴性(-)", "non-reactive"}
_NEGATIVE |= {"nonreactive", "not detected", "none detected", "未检出", "未见", "absent"}
_POSITIVE = {"positive", "pos", "pos.", "阳性", "(+)", "+", "++", "+++", "++++", "阳性(+)"}
_POSITIVE |= {"1+", "2+", "3+", "4+", "+1", "+2", "+3", "+4", "reactive", "detected", "检出"}
_POSITIVE |= {"weakly positive", "弱阳性", "present", "±", "+-", "trace"}

MARKS = {"h", "l", "hh", "ll", "high", "low", "*", "**", "↑", "↓", "↑↑", "↓↓", "a", "偏高", "偏低"}
MARKS |= {"高", "低", "n", "normal", "正常", "异常", "abnormal", "h*", "l*", "↑*", "↓*"}
_MARK_AT_END = re.compile(r"^(.*\d)\s*(HH|LL|H|L|\*+|↑+|↓+)$")
_MARK_AT_START = re.compile(r"^(HH|LL|H|L|\*+|↑+|↓+)\s*(\d.*)$")


@dataclass(frozen=True)
class Range:
    """A reference range; a missing bound is infinite. `words` is set for a qualitative one."""

    low: float = -math.inf
    high: float = math.inf
    words: str | None = None


@dataclass(frozen=True)
class Value:
    """A measured value lies in `[low, high]`: one point unless the sheet says "<x" or ">x"."""

    low: float
    high: float


def plain(text: str) -> str:
    """Bring full-width forms, dashes, raised digits and comparison signs to one spelling."""
    spelled = unicodedata.normalize("NFKC", text.translate(_RAISED))
    return spelled.translate(_DASHES).translate(_SIGNS).strip()


def parse_number(text: str) -> float | None:
    """Return the number, thousands grouped by commas allowed; `None` when it is anything else."""
    compact = plain(text)
    if not _NUMBER_ONLY.fullmatch(compact):
        return None
    return float(compact.replace(",", ""))


def parse_value(text: str) -> Value | None:
    """Return where the value lies; `None` when it is no number."""
    number = parse_number(text)
    if number is not None:
        return Value(number, number)
    censored = _CENSORED.fullmatch(plain(text).replace(" ", ""))
    if censored is None:
        return None
    bound = float(censored[2].replace(",", ""))
    return Value(-math.inf, bound) if censored[1].startswith("<") else Value(bound, math.inf)


def parse_range(text: str) -> Range | None:
    """Return the range; `None` when it cannot be read with certainty."""
    spelled = plain(text)
    # A dash alone in a range's place says that there is none.
    if spelled != "-" and (word := _quality(spelled)):
        return Range(words=word)
    spelled = re.sub(r"^[(\[](.*)[)\]]$", r"\1", spelled).strip()
    for candidate in (spelled, _RANGE_UNIT.sub("", spelled)):
        compact = re.sub(r"\s+", "", candidate).lower()
        if between := _BETWEEN.fullmatch(compact):
            # "1.003-1,030": one of both marks was read wrongly, or printed so.
            if any(map(_ONE_GROUP.fullmatch, between.groups())) and _POINT.search(compact):
                return None
            low, high = (float(bound.replace(",", "")) for bound in between.groups())
            return Range(low, high) if low <= high else None
        if bound := _BOUND.fullmatch(compact):
            limit = float(bound[2].replace(",", ""))
            return Range(high=limit) if bound[1].startswith("<") else Range(low=limit)
    return None


def with_points(value_text: str, range_text: str) -> tuple[str, str]:
    """Bring decimal commas to points where the range can be read in no other way."""
    value, limits = plain(value_text), plain(range_text)
    if _DECIMAL_COMMA.search(limits) and not _NO_DECIMAL_COMMA.search(f"{value} {limits}"):
        return value.replace(",", "."), limits.replace(",", ".")
    return value_text, range_text


def decide(value_text: str, range_text: str) -> Flag:
    """Return the flag from value and range alone; a value on the bound is normal.

    A mark that separates three digits may be a decimal point or part thousands: where the other
    reading would be another story, nothing is said.
    """
    flag = _decide(value_text, range_text)
    value = plain(value_text)
    if flag in ("low", "high") and _ONE_GROUP.fullmatch(value):
        return "unknown" if _decide(value.replace(",", "."), range_text) == "normal" else flag
    if flag in ("low", "high") and _POINT_OR_GROUP.fullmatch(value) and "." not in range_text:
        return flag if _decide(value.replace(".", ""), range_text) == flag else "unknown"
    return flag


def needs_second_look(value_text: str, range_text: str) -> bool:
    """Whether a decimal point lost or won by the reader could have made the value abnormal."""
    number = parse_number(value_text)
    if number is None or _decide(value_text, range_text) not in ("low", "high"):
        return False
    shifted = (number * 10.0**power for power in (-3, -2, -1, 1, 2, 3))
    return any(_decide(f"{other:f}", range_text) == "normal" for other in shifted)


def _decide(value_text: str, range_text: str) -> Flag:
    limits = parse_range(range_text)
    if limits is None:
        return "unknown"
    if limits.words is not None:
        found = _quality(plain(value_text))
        if found is None:
            return "unknown"
        return "normal" if found == limits.words else "abnormal"
    value = parse_value(value_text)
    if value is None:
        return "unknown"
    if value.low >= limits.low and value.high <= limits.high:
        return "normal"
    # "<5" says less than 5, so against a lower bound of 5 it is low though the bound is not.
    censored = value.low != value.high
    if value.high < limits.low or (censored and value.high == limits.low):
        return "low"
    if value.low > limits.high or (censored and value.low == limits.high):
        return "high"
    return "unknown"


def clean_unit(text: str) -> str:
    """Mend what readers take for something that no unit is: "mlU/L", "10°9/L", "109/L"."""
    mended = re.sub(r"^([mμµu]?)[l1|]U/", r"\1IU/", text.strip())
    return re.sub(r"^([x×]?\s?10)[\^*°]?(3|6|9|12)\s?/", r"\1^\2/", mended)


def split_mark(text: str) -> tuple[str, str]:
    """Part a mark printed in the value's cell ("7.9 H", "↑ 7.9") from the value."""
    if found := _MARK_AT_END.match(text.strip()):
        return found[1].strip(), found[2]
    if found := _MARK_AT_START.match(text.strip()):
        return found[2].strip(), found[1]
    return text.strip(), ""


def is_value(text: str) -> bool:
    """Whether the text could be a result."""
    return parse_value(text) is not None or _quality(plain(text)) is not None


def is_range(text: str) -> bool:
    """Whether the text could be a reference range and not a plain value."""
    return parse_number(text) is None and parse_range(text) is not None


def is_mark(text: str) -> bool:
    """Whether the text is a printed flag such as "H" or an arrow."""
    return plain(text).lower() in MARKS


def _quality(text: str) -> str | None:
    word = re.sub(r"\s+", " ", text.strip().lower())
    if word in _NEGATIVE:
        return "negative"
    return "positive" if word in _POSITIVE else None
