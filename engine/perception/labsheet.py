"""Lab sheets: rows of text with boxes become analytes with value, unit, range and flag."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.api import Box, LabRow, TextRow
from engine.perception.labparse import (
    clean_unit,
    decide,
    is_mark,
    is_range,
    is_value,
    parse_number,
    parse_range,
    plain,
    split_mark,
    with_points,
)

# Headers as sheets print them, in `plain` spelling, lower case, without blanks and brackets.
_HEADERS: dict[str, set[str]] = {
    "analyte": {
        *("test", "testname", "tests", "analyte", "parameter", "investigation", "component"),
        *("item", "examination", "assay", "项目", "检验项目", "检测项目", "项目名称", "检查项目"),
        *("检验项目名称", "中文名称", "名称", "试验项目", "testitem", "testdescription"),
    },
    "value": {
        *("result", "results", "value", "values", "observedvalue", "yourresult", "结果"),
        *("检验结果", "测定结果", "检测结果", "结果值", "测定值", "检测值", "testresult"),
    },
    "unit": {"unit", "units", "单位", "计量单位"},
    "range": {
        *("reference", "range", "referencerange", "ref.range", "refrange", "ref", "ref."),
        *("referenceinterval", "referencevalue", "referencevalues", "normalrange", "normal"),
        *("biologicalreferenceinterval", "biologicalref.interval", "normalvalue", "参考范围"),
        *("参考值", "参考区间", "参考值范围", "正常值", "正常范围", "正常参考值", "生物参考区间"),
    },
    "mark": {
        *("flag", "flags", "标志", "提示", "状态", "异常", "异常提示", "abnormal", "h/l", "status"),
        *("箭头", "高低", "结果提示", "abn"),
    },
    # Columns that only give the others their place.
    "other": {
        *("no", "no.", "#", "序号", "编号", "code", "代码", "abbr", "abbr.", "缩写", "英文名称"),
        *("英文缩写", "method", "方法", "检验方法", "检测方法", "date", "日期", "comment", "备注"),
    },
}
_FIELD_OF = {word: field for field, words in _HEADERS.items() for word in words}

_UNIT = re.compile(
    r"^(%|‰|(?:10|x10|×10)[\^*]?\d*\S*|[a-zμµ]{0,5}(?:mol|g|l|u|iu|eq|osm|s|sec|min|hg|cells?)"
    r"(?:/\S+)?|\S{1,12}/\S{1,12}|sec|fl|pg|mmhg|ratio)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Cell:
    box: Box
    text: str
    score: float

    @property
    def right(self) -> float:
        return self.box.x + self.box.width

    @property
    def bottom(self) -> float:
        return self.box.y + self.box.height


@dataclass(frozen=True)
class _Column:
    """A column of a table; `table` counts tables that stand side by side."""

    field: str
    table: int
    box: Box


class LabSheetReader:
    """Takes text rows in reading order and returns a lab row as soon as its line is complete.

    Nothing comes before a header that names at least analyte, value and one of unit and range;
    a later header begins a new table. A line is complete when text of the next one arrives.
    """

    def __init__(self, media: str) -> None:
        self._media = media
        self._line: list[_Cell] = []
        self._columns: list[_Column] = []
        self._count = 0

    def feed(self, row: TextRow) -> list[LabRow]:
        """Add one text; returns the rows of the line that it ended, if any."""
        cell = _Cell(row.box, row.text, row.score)
        done: list[LabRow] = []
        if self._line and not _is_beside(self._line, cell):
            done = self.finish()
        self._line.append(cell)
        return done

    def finish(self) -> list[LabRow]:
        """Say that the line is complete, which at the end of the sheet nobody else says."""
        line, self._line = self._line, []
        if columns := _header(line):
            self._columns = columns
            return []
        if not self._columns or not line:
            return []
        return self._rows(line)

    def _rows(self, line: list[_Cell]) -> list[LabRow]:
        tables: dict[int, dict[str, list[_Cell]]] = {}
        for column, cell in _placed(line, self._columns):
            tables.setdefault(column.table, {}).setdefault(column.field, []).append(cell)
        rows = []
        for fields in tables.values():
            row = self._row({field: _merged(cells) for field, cells in fields.items()})
            if row is not None:
                rows.append(row)
        return rows

    def _row(self, cells: dict[str, _Cell]) -> LabRow | None:
        cells.pop("other", None)
        _part_mark(cells)
        analyte, value = cells.get("analyte"), cells.get("value")
        if analyte is None or value is None:
            return None
        # A footer may happen to stand in two columns; a row has a readable value or a range.
        range_text = cells["range"].text if "range" in cells else ""
        value_read, range_read = with_points(value.text, range_text)
        limits = parse_range(range_read)
        if not is_value(value_read) and limits is None:
            return None
        self._count += 1
        return LabRow(
            media=self._media,
            id=f"{self._media}.lab.{self._count}",
            box=_around([cell.box for cell in cells.values()]),
            analyte=analyte.text,
            value=value.text,
            unit=clean_unit(cells["unit"].text) if "unit" in cells else "",
            range=range_text,
            flag=decide(value_read, range_read),
            number=parse_number(value_read),
            low=limits.low if limits and limits.low > float("-inf") else None,
            high=limits.high if limits and limits.high < float("inf") else None,
            cells={field: cell.box for field, cell in cells.items()},
            score=min(cell.score for cell in cells.values()),
        )


def _is_beside(line: list[_Cell], cell: _Cell) -> bool:
    """Whether the cell overlaps the line's height by half of the smaller of both."""
    top = min(other.box.y for other in line)
    bottom = max(other.bottom for other in line)
    overlap = min(bottom, cell.bottom) - max(top, cell.box.y)
    return overlap >= 0.5 * min(bottom - top, cell.box.height)


# -- columns -------------------------------------------------------------------------------------


def _header(line: list[_Cell]) -> list[_Column]:
    """Return the columns when the line is a header, else an empty list."""
    columns: list[_Column] = []
    table = 0
    seen: set[str] = set()
    for cell in line:
        for part in _header_parts(cell):
            field = _FIELD_OF.get(_key(part.text), "other")
            if field != "other" and field in seen:
                table += 1
                seen = set()
            seen.add(field)
            columns.append(_Column(field, table, part.box))
    fields = {column.field for column in columns}
    is_header = {"analyte", "value"} <= fields and fields & {"unit", "range"}
    return columns if is_header else []


def _key(text: str) -> str:
    return re.sub(r"[\s()\[\]:：]", "", plain(text)).lower()


def _header_parts(cell: _Cell) -> list[_Cell]:
    """Part "Result Unit" in its words when they name two columns and the whole names none."""
    words = cell.text.split()
    if _key(cell.text) in _FIELD_OF or len(words) < 2:
        return [cell]
    for cut in range(1, len(words)):
        first, second = " ".join(words[:cut]), " ".join(words[cut:])
        if _key(first) in _FIELD_OF:
            left, right = _cut(cell, first, second)
            return [left, *_header_parts(right)]
    return [cell]


def _placed(line: list[_Cell], columns: list[_Column]) -> list[tuple[_Column, _Cell]]:
    """Give each cell its column: columns never go back, the sum of misfits is least.

    A cell that was read together with its neighbour is parted first.
    """
    cells = [part for cell in line for part in _parted(cell, columns)]
    # best[c] = (misfit so far, columns of the cells so far) with the last cell in column c
    best: list[tuple[float, list[int]]] = [(0.0, [])] * len(columns)
    for cell in cells:
        now: list[tuple[float, list[int]]] = []
        for index, column in enumerate(columns):
            misfit, path = min(best[: index + 1], key=lambda one: one[0])
            now.append((misfit + _misfit(cell, column), [*path, index]))
        best = now
    _, chosen = min(best, key=lambda one: one[0])
    return [(columns[index], cell) for index, cell in zip(chosen, cells, strict=True)]


def _misfit(cell: _Cell, column: _Column) -> float:
    """How badly a cell fits a column, in line heights: columns align left, centred or right."""
    left = abs(cell.box.x - column.box.x)
    right = abs(cell.right - column.box.x - column.box.width)
    centre = abs(cell.box.x + cell.box.width / 2 - column.box.x - column.box.width / 2)
    distance = min(left, right, centre) / max(1.0, column.box.height)
    return distance + (0.0 if _suits(cell.text, column.field) else 2.0)


def _suits(text: str, field: str) -> bool:
    match field:
        case "value":
            return is_value(split_mark(text)[0])
        case "range":
            return is_range(text)
        case "unit":
            return _UNIT.match(plain(text)) is not None
        case "mark":
            return is_mark(text)
        case "analyte":
            return parse_number(text) is None and not is_mark(text)
        case _:
            return True


def _parted(cell: _Cell, columns: list[_Column]) -> list[_Cell]:
    """Part a text that reaches into the next column at the blank where both halves make sense."""
    under = [column for column in columns if _overlap(cell.box, column.box) > 0]
    words = cell.text.split()
    if len(under) < 2 or len(words) < 2:
        return [cell]
    first_field, second_field = under[0].field, under[1].field
    if second_field not in ("value", "unit", "range"):
        return [cell]
    for cut in range(1, len(words)):
        left, right = _cut(cell, " ".join(words[:cut]), " ".join(words[cut:]))
        rest = _parted(right, columns[columns.index(under[1]) :])
        if _suits(left.text, first_field) and _suits(rest[0].text, second_field):
            return [left, *rest]
    return [cell]


def _overlap(one: Box, other: Box) -> float:
    return min(one.x + one.width, other.x + other.width) - max(one.x, other.x)


def _cut(cell: _Cell, first: str, second: str) -> tuple[_Cell, _Cell]:
    """Divide the box in proportion to the letters of both halves, the blank between them."""
    step = cell.box.width / max(1, len(first) + 1 + len(second))
    x, y, height = cell.box.x, cell.box.y, cell.box.height
    left = Box(x, y, step * len(first), height)
    start = x + step * (len(first) + 1)
    right = Box(start, y, cell.right - start, height)
    return _Cell(left, first, cell.score), _Cell(right, second, cell.score)


# -- rows ----------------------------------------------------------------------------------------


def _merged(cells: list[_Cell]) -> _Cell:
    return _Cell(
        _around([cell.box for cell in cells]),
        " ".join(cell.text for cell in cells),
        min(cell.score for cell in cells),
    )


def _part_mark(cells: dict[str, _Cell]) -> None:
    """Move a mark that was printed behind or before the value into its own cell."""
    value = cells.get("value")
    if value is None:
        return
    text, mark = split_mark(value.text)
    if not mark:
        return
    if value.text.startswith(mark):
        mark_cell, value_cell = _cut(value, mark, text)
    else:
        value_cell, mark_cell = _cut(value, text, mark)
    cells["value"] = value_cell
    cells.setdefault("mark", mark_cell)


def _around(boxes: list[Box]) -> Box:
    x, y = min(box.x for box in boxes), min(box.y for box in boxes)
    right = max(box.x + box.width for box in boxes)
    bottom = max(box.y + box.height for box in boxes)
    return Box(x, y, right - x, bottom - y)
