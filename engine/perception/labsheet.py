"""Lab sheets: rows of text with boxes become analytes with value, unit, range and flag."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engine.api import Doubt, LabRow, TextRow
from engine.perception.labcolumns import Cell, Column, around, cut, header, placed
from engine.perception.labnumber import MarkWitness
from engine.perception.labparse import contradicts, is_range, is_value, judge, split_mark
from engine.perception.labunit import clean_unit, is_incomplete, split_unit

# A wrapped name goes on at most so many lines, each this many letter heights below the last.
_MOST_LINES = 3
_NEXT_LINE = 1.8
# The space to the next row is by so much wider than that between the lines of one name.
_WIDER = 1.25
# A name is wrapped where it takes this much of the room to the next column.
_FULL = 0.75
_CHINESE = re.compile(r"[\u3400-\u9fff]")


@dataclass
class _Open:
    """A row whose name may go on: `last` is its last line, `maybe` the lines that may be of it."""

    cells: dict[str, Cell]
    last: Cell
    maybe: list[Cell] = field(default_factory=list)


class LabSheetReader:
    """Takes text rows in reading order and returns a lab row as soon as its line is complete.

    Nothing comes before a header that names at least analyte, value and one of unit and range;
    a later header begins a new table. A line is complete when text of the next one arrives; a row
    whose name may be wrapped waits for the line behind that.
    """

    def __init__(self, media: str) -> None:
        self._media = media
        self._line: list[Cell] = []
        self._columns: list[Column] = []
        self._open: dict[int, _Open] = {}
        # By table: a line of nothing but a name, which may belong to the row below it.
        self._names: dict[int, Cell] = {}
        self._witness = MarkWitness()
        # Where the last row or header stood, and how far below it the row stands that is open.
        self._at = 0.0
        self._step = 0.0
        self._count = 0

    def feed(self, row: TextRow) -> list[LabRow]:
        """Add one text; returns the rows that it shows to be complete, if any."""
        cell = Cell(row.box, row.text, row.score)
        done: list[LabRow] = []
        if self._line and not _is_beside(self._line, cell):
            done += self._end_line()
        if not self._line and not any(_may_go_on(row.last, cell) for row in self._open.values()):
            done += self._released(cell)
        self._line.append(cell)
        return done

    def finish(self) -> list[LabRow]:
        """Say that the sheet is complete, which nobody else says of its last line."""
        return self._end_line() + self._released(None)

    def _end_line(self) -> list[LabRow]:
        line, self._line = self._line, []
        if columns := header(line):
            if any(_CHINESE.search(cell.text) for cell in line):
                self._witness.tell(".")
            self._columns, self._names, self._at = columns, {}, _middle(line[0])
            return self._released(None)
        if not self._columns or not line:
            return []
        tables: dict[int, dict[str, list[Cell]]] = {}
        for column, cell in placed(line, self._columns):
            tables.setdefault(column.table, {}).setdefault(column.field, []).append(cell)
        merged = {
            table: {name: _merged(cells) for name, cells in fields.items()}
            for table, fields in tables.items()
        }
        if all(set(fields) == {"analyte"} for fields in merged.values()):
            self._take_names({table: fields["analyte"] for table, fields in merged.items()})
            return []
        done = self._released(line[0])
        for table, fields in merged.items():
            self._open_row(table, fields)
        self._at, self._step = _middle(line[0]), _middle(line[0]) - self._at
        return done

    # -- wrapped names ---------------------------------------------------------------------------

    def _take_names(self, names: dict[int, Cell]) -> None:
        """Keep lines of nothing but a name: they go on above, begin what is below, or title it."""
        for table, name in names.items():
            row = self._open.get(table)
            is_full = row is not None and len(row.maybe) == _MOST_LINES - 1
            if row is None or is_full or not _may_go_on(row.last, name):
                self._names[table] = name
            elif not self._has_room(table, name):
                # A footer runs on below the values, which no name does.
                continue
            elif _surely_goes_on(row.last.text, name.text):
                row.cells["analyte"] = _joined([row.cells["analyte"], *row.maybe, name])
                row.maybe, row.last = [], name
            else:
                row.maybe.append(name)
                row.last = name

    def _open_row(self, table: int, cells: dict[str, Cell]) -> None:
        name = self._names.pop(table, None)
        analyte = cells.get("analyte")
        if name is not None and analyte is None and _is_below(name, _merged([*cells.values()])):
            cells["analyte"] = name
        elif name is not None and analyte is not None and _may_go_on(name, analyte):
            if _surely_goes_on(name.text, analyte.text) or self._fills_column(name, analyte):
                cells["analyte"] = _joined([name, analyte])
        cells.pop("other", None)
        if "analyte" in cells and "value" in cells:
            self._open[table] = _Open(cells, analyte or cells["analyte"])

    def _has_room(self, table: int, name: Cell) -> bool:
        """Whether it ends before the middle of the column beside it."""
        beside = [
            at.box.x + at.box.width / 2
            for at in self._columns
            if at.table == table and at.field != "analyte" and at.box.x > name.box.x
        ]
        return name.right <= min(beside, default=0.0)

    def _fills_column(self, name: Cell, analyte: Cell) -> bool:
        """Whether the name was wrapped for want of room; a title is short, or has room below."""
        beside = [at.box.x for at in self._columns if at.box.x > name.right]
        room = min(beside, default=0.0) - name.box.x
        step = _middle(analyte) - _middle(name)
        return name.box.width >= _FULL * room and _middle(name) - self._at >= _WIDER * step

    def _released(self, following: Cell | None) -> list[LabRow]:
        """Return the open rows; lines nearer to what follows are no part of their names."""
        rows = []
        for table, row in self._open.items():
            below = self._step if following is None else _middle(following) - _middle(row.last)
            if row.maybe and below >= _WIDER * _widest_step([row.cells["analyte"], *row.maybe]):
                row.cells["analyte"] = _joined([row.cells["analyte"], *row.maybe])
            elif row.maybe:
                self._names[table] = row.maybe[-1]
            if (made := self._row(row.cells)) is not None:
                rows.append(made)
        self._open = {}
        return rows

    # -- rows ------------------------------------------------------------------------------------

    def _row(self, cells: dict[str, Cell]) -> LabRow | None:
        _part_mark(cells)
        _part_unit(cells)
        # A footer may happen to stand in two columns; a row has a readable value or a range.
        value = cells["value"].text
        limits = cells["range"].text if "range" in cells else ""
        if not is_value(value) and not is_range(limits):
            return None
        unit = clean_unit(cells["unit"].text) if "unit" in cells else ""
        self._witness.hear(value, limits)
        judged = judge(value, limits, unit=unit, sheet_mark=self._witness.mark)
        doubt: Doubt | None = judged.doubt
        if doubt is None and "mark" in cells and contradicts(cells["mark"].text, judged.flag):
            doubt = "mark"
        if doubt is None and is_incomplete(unit):
            doubt = "unit"
        self._count += 1
        return LabRow(
            media=self._media,
            id=f"{self._media}.lab.{self._count}",
            box=around([cell.box for cell in cells.values()]),
            analyte=cells["analyte"].text,
            value=value,
            unit=unit,
            range=limits,
            flag=judged.flag,
            number=judged.number,
            low=judged.low,
            high=judged.high,
            doubt=doubt,
            cells={name: cell.box for name, cell in cells.items()},
            score=min(cell.score for cell in cells.values()),
        )


def _is_beside(line: list[Cell], cell: Cell) -> bool:
    """Whether the cell overlaps the line's height by half of the smaller of both."""
    top = min(other.box.y for other in line)
    bottom = max(other.bottom for other in line)
    overlap = min(bottom, cell.bottom) - max(top, cell.box.y)
    return overlap >= 0.5 * min(bottom - top, cell.box.height)


def _middle(cell: Cell) -> float:
    return cell.box.y + cell.box.height / 2


def _is_below(upper: Cell, lower: Cell) -> bool:
    """Whether it is the very next line, as close as lines of one paragraph are."""
    height = max(upper.box.height, lower.box.height)
    return 0 < _middle(lower) - _middle(upper) <= _NEXT_LINE * height


def _may_go_on(upper: Cell, lower: Cell) -> bool:
    """Whether the lower one may be the next line of the upper one: close, and aligned left."""
    height = max(upper.box.height, lower.box.height)
    return _is_below(upper, lower) and abs(upper.box.x - lower.box.x) <= 1.5 * height


def _surely_goes_on(upper: str, lower: str) -> bool:
    """Whether the words themselves say that they are one name."""
    is_cut = upper.count("(") + upper.count("（") > upper.count(")") + upper.count("）")
    return is_cut or upper.endswith(("-", "/", ",")) or lower[:1].islower() or lower[:1] in ")）"


def _widest_step(lines: list[Cell]) -> float:
    return max(
        _middle(lower) - _middle(upper) for upper, lower in zip(lines, lines[1:], strict=False)
    )


def _joined(lines: list[Cell]) -> Cell:
    """Make one name of its lines; Chinese has no blanks, and a hyphen needs none."""
    text = lines[0].text
    for line in lines[1:]:
        is_tight = text.endswith(("-", "/")) or (
            _CHINESE.match(text[-1:]) or _CHINESE.match(line.text[:1])
        )
        text += line.text if is_tight else f" {line.text}"
    merged = _merged(lines)
    return Cell(merged.box, text, merged.score)


def _merged(cells: list[Cell]) -> Cell:
    return Cell(
        around([cell.box for cell in cells]),
        " ".join(cell.text for cell in cells),
        min(cell.score for cell in cells),
    )


def _part_mark(cells: dict[str, Cell]) -> None:
    """Move a mark that was printed behind or before the value into its own cell."""
    value = cells["value"]
    text, mark = split_mark(value.text)
    if not mark:
        return
    if value.text.rstrip().endswith(text):
        mark_cell, value_cell = cut(value, mark, text)
    else:
        value_cell, mark_cell = cut(value, text, mark)
    cells["value"] = value_cell
    cells.setdefault("mark", mark_cell)


def _part_unit(cells: dict[str, Cell]) -> None:
    """Move a unit that was printed behind the value into its own cell, where that is free."""
    value = cells["value"]
    if "unit" in cells or is_value(value.text):
        return
    text, unit = split_unit(value.text)
    if unit and is_value(text):
        cells["value"], cells["unit"] = cut(value, text, unit)
