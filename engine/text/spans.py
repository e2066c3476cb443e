"""Numbers, units and names in the growing answer, and the places in pictures they speak of."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import regex

from engine.api import Box, LabRow, Seen, Span, TextRow

# Longer phrases of a sheet are sentences, which an answer does not repeat by accident.
MAX_NAME_CHARS = 48
MIN_TEXT_ROW_CHARS = 4
_NUMBER = r"[+-]?\d{1,12}(?:[.,]\d{1,8})*"
_UNITS = (
    r"x?10\^?\d{1,2}/[µu]?L|[munpfkµμ]?mol/(?:mol|L|d|24h)|(?:m|µ|μ|u|n|p|k)?g/(?:dL|L|mL|kg|d|24h)"
    r"|(?:m|µ|μ|u)?I?U/m?L|mmHg|mEq/L|mm/h|mL/min(?:/1\.73m²)?|bpm|kPa|pg|fL|cm|mm|mL|kg|mg|°C|%"
)
_MAX_UNIT_CHARS = 20
_LOOK_AHEAD = 12 + 9 * 3 + 1 + _MAX_UNIT_CHARS


@dataclass(frozen=True)
class Target:
    """One thing in a picture that an answer may speak of."""

    media: str
    observation: str
    box: Box
    row: LabRow | None


@dataclass(frozen=True)
class Link:
    """The part `[start, end)` of the answer speaks of `target`, most exactly of `box`."""

    start: int
    end: int
    target: Target
    box: Box


class SpanFinder:
    """Reads the answer as it grows, in any pieces, and gives each find once.

    A find is given when no further text can change it: when as many whole words stand behind
    its start as the longest thing looked for has, or as many characters.
    """

    def __init__(self, seen: Iterable[Seen]) -> None:
        self._names: dict[str, list[Target]] = {}
        self._values: dict[float, list[Target]] = {}
        for media in seen:
            self._add(media)
        names = sorted(self._names, key=len, reverse=True)
        entity = "|".join(regex.escape(name).replace(r"\ ", r"\s") for name in names) or r"(?!)"
        self._pattern = regex.compile(
            rf"(?<![\w])(?P<entity>{entity})(?![\w])"
            rf"|(?<![\w.])(?P<number>{_NUMBER})(?![\w]|[.,]\d)(?:\s?(?P<unit>{_UNITS})(?![\w/]))?"
            rf"|(?<![\w.])(?P<number>{_NUMBER})(?P<unit>{_UNITS})(?![\w/])",
            regex.IGNORECASE | regex.FULLCASE,
        )
        longest = max((len(name) for name in names), default=0)
        self._look_ahead = max(longest + 1, _LOOK_AHEAD)
        words = max((len(name.split()) for name in names), default=0)
        # Ends of the last whole words; a number and its unit are two.
        self._word_ends: deque[int] = deque(maxlen=max(words, 2))
        self._text = ""
        self._at = 0
        self._last_named: Target | None = None
        self._named_at = 0

    def push(self, text: str, *, final: bool = False) -> tuple[list[Span], list[Link]]:
        """Add text; return the spans and links that became certain, in order."""
        read = len(self._text)
        self._text += text
        self._find_words(read)
        spans: list[Span] = []
        links: list[Link] = []
        settled = len(self._text) if final else self._settled()
        while self._at < settled:
            match = self._pattern.search(self._text, self._at)
            if match is None or match.start() >= settled:
                self._at = max(self._at, settled)
                break
            self._take(match, spans, links)
            self._at = match.end()
        return spans, links

    def _find_words(self, start: int) -> None:
        for at in range(max(start, 1), len(self._text)):
            if self._text[at].isspace() and not self._text[at - 1].isspace():
                self._word_ends.append(at)

    def _settled(self) -> int:
        """Return the position in front of which every find is certain."""
        by_words = 0
        if len(self._word_ends) == self._word_ends.maxlen:
            by_words = self._word_ends[0]
        return max(by_words, len(self._text) - self._look_ahead)

    def _take(self, match: regex.Match[str], spans: list[Span], links: list[Link]) -> None:
        start, end = match.span()
        if match["entity"] is not None:
            spans.append(Span(start=start, end=end, kind="entity"))
            # The pattern also takes "İ" for "i", which no folding does.
            targets = self._names.get(_folded(match["entity"]), [])
            if len(targets) == 1:
                self._last_named, self._named_at = targets[0], end
                links.append(Link(start, end, targets[0], targets[0].box))
            return
        number_start, number_end = match.span("number")
        target = self._valued(match)
        out = target is not None and target.row is not None and target.row.flag in _OUT
        spans.append(
            Span(start=number_start, end=number_end, kind="out_of_range" if out else "number")
        )
        if match["unit"] is not None:
            unit_start, unit_end = match.span("unit")
            spans.append(Span(start=unit_start, end=unit_end, kind="unit"))
        if target is not None and target.row is not None:
            box = target.row.cells.get("value", target.box)
            links.append(Link(number_start, number_end, target, box))

    def _valued(self, match: regex.Match[str]) -> Target | None:
        """Return the row whose value the number is, when there can be no other.

        That is the analyte named before it in the same line, once for each time it is named; or,
        with its unit behind it, the only row with this value and unit. A bare number that
        happens to be some row's value points nowhere: it may be a bound or a count.
        """
        number = _number(match["number"])
        targets = self._values.get(number, []) if number is not None else []
        named = self._last_named
        if named is not None and "\n" not in self._text[self._named_at : match.start()]:
            if named in targets:
                self._last_named = None
                return named
            return None
        with_unit = [target for target in targets if _has_unit(target, match["unit"])]
        return with_unit[0] if len(with_unit) == 1 else None

    def _add(self, seen: Seen) -> None:
        for row in seen.lab_rows:
            target = Target(row.media, row.id, row.box, row)
            self._name(row.analyte, target)
            number = row.number if row.number is not None else _number(row.value)
            if number is not None:
                self._values.setdefault(number, []).append(target)
        for text in _free_rows(seen):
            self._name(text.text, Target(text.media, text.id, text.box, None))

    def _name(self, name: str, target: Target) -> None:
        name = _folded(name)
        if 1 < len(name) <= MAX_NAME_CHARS and any(letter.isalpha() for letter in name):
            self._names.setdefault(name, []).append(target)


_OUT = ("low", "high", "abnormal")


def _free_rows(seen: Seen) -> list[TextRow]:
    """Text rows that are not already told by a lab row."""
    boxes = [row.box for row in seen.lab_rows]
    return [
        row
        for row in seen.text_rows
        if _is_telling(row.text.strip()) and not any(covers(box, row.box) for box in boxes)
    ]


def _is_telling(text: str) -> bool:
    """Whether a line is more than a single common word such as "Result", which says no place."""
    return len(text) >= MIN_TEXT_ROW_CHARS and not (text.isascii() and text.isalpha())


def covers(outer: Box, inner: Box) -> bool:
    """Whether the middle of `inner` lies in `outer`."""
    x, y = inner.x + inner.width / 2, inner.y + inner.height / 2
    return outer.x <= x <= outer.x + outer.width and outer.y <= y <= outer.y + outer.height


def _folded(name: str) -> str:
    """Fold as the pattern's `FULLCASE` compares: "µ" (micro) is "μ" (mu), "ß" is "ss"."""
    return " ".join(name.casefold().split())


def _has_unit(target: Target, unit: str | None) -> bool:
    """Whether the row's unit stands behind the number; a unit may be written in two ways."""
    if unit is None or target.row is None:
        return False
    return _plain_unit(unit) == _plain_unit(target.row.unit)


def _plain_unit(unit: str) -> str:
    return unit.lower().replace("µ", "u").replace("μ", "u").replace("^", "").removeprefix("x")


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
