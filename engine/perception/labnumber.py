"""Numbers of lab sheets: one printed string may mean two numbers, and then both are kept."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

# What stands before the decimals on a sheet; the other one of both then groups thousands.
DecimalMark = Literal[".", ","]
MARKS: tuple[DecimalMark, ...] = (".", ",")

_WITH_POINT = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?"
_WITH_COMMA = r"(?:[1-9][0-9]{0,2}(?:\.[0-9]{3})+|[0-9]+)(?:,[0-9]+)?"
NUMBER: dict[DecimalMark, str] = {".": rf"[+-]?{_WITH_POINT}", ",": rf"[+-]?{_WITH_COMMA}"}
_WHOLE = {mark: re.compile(pattern) for mark, pattern in NUMBER.items()}
_TOKEN = re.compile(r"[0-9][0-9.,]*[0-9]|[0-9]")

# One mark before three digits: "1,234" is one and a bit, or a thousand and more.
ONE_GROUP = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")

# A raised digit behind a value points to a footnote: NFKC would make 5.62 of "5.6²".
_RAISED = str.maketrans({raised: f"^{digit}" for digit, raised in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")})
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—―−﹣", "-"))
_SIGNS = str.maketrans({"≤": "<=", "≥": ">=", "⩽": "<=", "⩾": ">=", "≦": "<=", "≧": ">=", "∼": "~"})


def plain(text: str) -> str:
    """Bring full-width forms, dashes, raised digits and comparison signs to one spelling."""
    spelled = unicodedata.normalize("NFKC", text.translate(_RAISED))
    return spelled.translate(_DASHES).translate(_SIGNS).strip()


def read_number(text: str, mark: DecimalMark) -> float | None:
    """Return the number under one decimal mark; `None` when it is anything else."""
    compact = plain(text)
    return to_float(compact, mark) if _WHOLE[mark].fullmatch(compact) else None


def parse_number(text: str) -> float | None:
    """Return the number with a decimal point, thousands grouped by commas allowed."""
    return read_number(text, ".")


def is_number(text: str) -> bool:
    """Whether the text is a number under either decimal mark."""
    return any(read_number(text, mark) is not None for mark in MARKS)


def to_float(compact: str, mark: DecimalMark) -> float:
    """Return what a string that matches `NUMBER[mark]` means."""
    group = "," if mark == "." else "."
    return float(compact.replace(group, "").replace(",", "."))


def certain_mark(token: str) -> DecimalMark | None:
    """Return the decimal mark that one number gives away, if it does: "5,6", "1.234,5", "0.850"."""
    fits = [mark for mark in MARKS if _WHOLE[mark].fullmatch(token)]
    return fits[0] if len(fits) == 1 else None


def marks_in(text: str) -> set[DecimalMark]:
    """Return the decimal marks that the numbers of a text give away."""
    return {mark for token in _TOKEN.findall(plain(text)) if (mark := certain_mark(token))}


def swapped(text: str) -> str:
    """Return the text with points for commas and commas for points."""
    return text.translate(str.maketrans(".,", ",."))


class MarkWitness:
    """Hears the numbers of a sheet and says which decimal mark it uses, once that is certain.

    One comma in a value may be a point that was read wrongly, so it takes two of them or one in a
    range; a sheet with both marks says nothing.
    """

    def __init__(self) -> None:
        self._heard = {".": 0, ",": 0}

    @property
    def mark(self) -> DecimalMark | None:
        """The sheet's decimal mark; `None` while it is not known."""
        for mark, other in ((MARKS[0], MARKS[1]), (MARKS[1], MARKS[0])):
            if self._heard[mark] >= 2 and not self._heard[other]:
                return mark
        return None

    def tell(self, mark: DecimalMark) -> None:
        """Take it from something else than a number, such as the sheet's language."""
        self._heard[mark] += 2

    def hear(self, value_text: str, range_text: str) -> None:
        """Take the numbers of one row into account."""
        for text, weight in ((value_text, 1), (range_text, 2)):
            for mark in marks_in(text):
                self._heard[mark] += weight if mark == "," else 2
