"""The columns of a lab sheet: which line is a header, and which cell stands in which column."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.api import Box
from engine.perception.labnumber import is_number, plain
from engine.perception.labparse import is_mark, is_range, is_value, split_mark
from engine.perception.labunit import is_unit

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


@dataclass(frozen=True)
class Cell:
    """A text of the sheet and where it stands."""

    box: Box
    text: str
    score: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.box.x + self.box.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.box.y + self.box.height


@dataclass(frozen=True)
class Column:
    """A column of a table; `table` counts tables that stand side by side."""

    field: str
    table: int
    box: Box


def header(line: list[Cell]) -> list[Column]:
    """Return the columns when the line is a header, else an empty list."""
    columns: list[Column] = []
    table = 0
    seen: set[str] = set()
    for cell in line:
        for part in _header_parts(cell):
            field = _FIELD_OF.get(_key(part.text), "other")
            if field != "other" and field in seen:
                table += 1
                seen = set()
            seen.add(field)
            columns.append(Column(field, table, part.box))
    fields = {column.field for column in columns}
    is_header = {"analyte", "value"} <= fields and fields & {"unit", "range"}
    return columns if is_header else []


def _key(text: str) -> str:
    return re.sub(r"[\s()\[\]:：]", "", plain(text)).lower()


def _header_parts(cell: Cell) -> list[Cell]:
    """Part "Result Unit" in its words when they name two columns and the whole names none."""
    words = cell.text.split()
    if _key(cell.text) in _FIELD_OF or len(words) < 2:
        return [cell]
    for at in range(1, len(words)):
        first, second = " ".join(words[:at]), " ".join(words[at:])
        if _key(first) in _FIELD_OF:
            left, right = cut(cell, first, second)
            return [left, *_header_parts(right)]
    return [cell]


def placed(line: list[Cell], columns: list[Column]) -> list[tuple[Column, Cell]]:
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


def _misfit(cell: Cell, column: Column) -> float:
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
            return is_unit(text)
        case "mark":
            return is_mark(text)
        case "analyte":
            return not is_number(text) and not is_mark(text)
        case _:
            return True


def _parted(cell: Cell, columns: list[Column]) -> list[Cell]:
    """Part a text that reaches into the next column at the blank where both halves make sense."""
    under = [column for column in columns if _overlap(cell.box, column.box) > 0]
    words = cell.text.split()
    if len(under) < 2 or len(words) < 2:
        return [cell]
    first_field, second_field = under[0].field, under[1].field
    if second_field not in ("value", "unit", "range"):
        return [cell]
    for at in range(1, len(words)):
        left, right = cut(cell, " ".join(words[:at]), " ".join(words[at:]))
        rest = _parted(right, columns[columns.index(under[1]) :])
        if _suits(left.text, first_field) and _suits(rest[0].text, second_field):
            return [left, *rest]
    return [cell]


def _overlap(one: Box, other: Box) -> float:
    return min(one.x + one.width, other.x + other.width) - max(one.x, other.x)


def cut(cell: Cell, first: str, second: str) -> tuple[Cell, Cell]:
    """Divide the box in proportion to the letters of both halves, the blank between them."""
    step = cell.box.width / max(1, len(first) + 1 + len(second))
    x, y, height = cell.box.x, cell.box.y, cell.box.height
    left = Box(x, y, step * len(first), height)
    start = x + step * (len(first) + 1)
    right = Box(start, y, cell.right - start, height)
    return Cell(left, first, cell.score), Cell(right, second, cell.score)


def around(boxes: list[Box]) -> Box:
    """Return the box around boxes."""
    x, y = min(box.x for box in boxes), min(box.y for box in boxes)
    right = max(box.x + box.width for box in boxes)
    bottom = max(box.y + box.height for box in boxes)
    return Box(x, y, right - x, bottom - y)
