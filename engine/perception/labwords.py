"""Results in words: negative, trace and the pluses, in English and Chinese."""

from __future__ import annotations

import re

from engine.perception.labnumber import plain

# Grades from nothing to four pluses; a word covers those that it may mean.
Grades = tuple[int, int]
_NONE: Grades = (0, 0)
_TRACE: Grades = (1, 1)
_WEAK: Grades = (1, 2)
_ANY: Grades = (1, 5)

_WORDS: dict[str, Grades] = {}
for _grades, _words in (
    (_NONE, "negative neg neg. - 阴性 阴 non-reactive nonreactive notdetected nonedetected nil"),
    (_NONE, "未检出 未见 未查见 absent undetectable none"),
    (_TRACE, "trace traces tr ± +- +/- 微量 痕量"),
    (_WEAK, "weaklypositive weakpositive weaklyreactive 弱阳性 弱阳"),
    (_ANY, "positive pos pos. 阳性 阳 reactive detected present 检出 查见"),
):
    _WORDS |= dict.fromkeys(_words.split(), _grades)
for _pluses in range(1, 5):
    for _spelled in ("+" * _pluses, f"{_pluses}+", f"+{_pluses}"):
        _WORDS[_spelled] = (_pluses + 1, _pluses + 1)

# "阳性(++)", "negative -", "neg(-)": the sign says it more exactly than the word.
_WORD_AND_SIGN = re.compile(r"(阴性|阳性|弱阳性|negative|neg|positive|pos)(-|±|\+-|\++|\d\+|\+\d)")
_SPAN = re.compile(r"(.+?)(?:-|~|/|,|to|or|至|或)(.+)")


def grades_of(text: str) -> Grades | None:
    """Return the grades that a result in words may mean; `None` when it is no such result."""
    word = re.sub(r"[\s()\[\]]", "", plain(text).lower())
    if word in _WORDS:
        return _WORDS[word]
    both = _WORD_AND_SIGN.fullmatch(word)
    if both is None or both[2] not in _WORDS:
        return None
    said, signed = _WORDS[both[1]], _WORDS[both[2]]
    # A word and a sign that contradict each other are no result.
    return signed if said[0] <= signed[0] and signed[1] <= said[1] else None


def grade_range(text: str) -> Grades | None:
    """Return the grades that a reference in words allows: "Negative", "阴性 ~ ±"."""
    if plain(text) == "-":
        # A dash alone in a range's place says that there is none.
        return None
    if whole := grades_of(text):
        return whole
    span = _SPAN.fullmatch(re.sub(r"[\s()\[\]]", "", plain(text).lower()))
    if span is None:
        return None
    first, last = grades_of(span[1]), grades_of(span[2])
    if first is None or last is None or first[0] > last[0]:
        return None
    return (first[0], last[1])
