import pytest

from engine.api import Box
from engine.perception.labcolumns import Cell, around, cut, header, placed


def cells(*texts, x=0.0, step=150.0):
    return [
        Cell(Box(x + step * n, 0, 10.0 * len(text), 20), text, 1.0) for n, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("texts", "fields"),
    [
        (("Test", "Result", "Unit", "Reference"), ["analyte", "value", "unit", "range"]),
        (("项目", "结果", "参考值"), ["analyte", "value", "range"]),
        (("No.", "Item", "Result Unit", "Range"), ["other", "analyte", "value", "unit", "range"]),
        (("Test", "Result"), []),
        (("Glucose", "5.6", "mmol/L", "3.9-6.1"), []),
    ],
)
def test_a_header_names_its_columns(texts, fields):
    assert [column.field for column in header(cells(*texts))] == fields


def test_a_field_that_comes_again_begins_a_table():
    columns = header(cells("项目", "结果", "单位", "项目", "结果", "单位"))
    assert [column.table for column in columns] == [0, 0, 0, 1, 1, 1]


def test_cells_never_go_back_to_an_earlier_column():
    columns = header(cells("Test", "Result", "Unit", "Reference"))
    chosen = placed(cells("Glucose", "7.9", "mmol/L", "3.9-6.1", x=20), columns)
    assert [column.field for column, _ in chosen] == ["analyte", "value", "unit", "range"]


def test_a_cut_box_leaves_the_blank_out_and_around_takes_it_back():
    [cell] = cells("7.9 mmol/L")
    left, right = cut(cell, "7.9", "mmol/L")
    assert (left.right, right.box.x) == (30, 40)
    assert around([left.box, right.box]) == cell.box
