import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from engine.api import Box, LabRow, Progress, TextRow
from engine.perception.labsheet import LabSheetReader
from tests.support.labsheet_render import overlap, reads_same, render_sheet
from tests.support.looking import look, media, of

COLUMNS = {"analyte": 40, "value": 300, "unit": 420, "range": 560, "mark": 760}
PLACES = tuple(COLUMNS.values())
HEADER = ["Test", "Result", "Unit", "Reference Range", "Flag"]


def at(x, y, text, letter=10.0):
    return TextRow(
        media="m", id=f"m.text.{x}.{y}", box=Box(x, y, letter * len(text), 20), text=text, score=0.9
    )


def line(y, *texts, columns=PLACES):
    return [at(x, y, text) for x, text in zip(columns, texts, strict=False) if text]


def read(*lines):
    sheet = LabSheetReader("m")
    rows = [row for texts in lines for text in texts for row in sheet.feed(text)]
    return rows + sheet.finish()


def test_a_row_has_its_fields_numbers_flag_and_boxes():
    [row] = read(line(0, *HEADER), line(50, "Potassium", "5.60", "mmol/L", "3.50-5.30", "H"))
    assert (row.analyte, row.value, row.unit, row.range) == (
        "Potassium",
        "5.60",
        "mmol/L",
        "3.50-5.30",
    )
    assert (row.number, row.low, row.high, row.flag) == (5.6, 3.5, 5.3, "high")
    assert set(row.cells) == set(COLUMNS)
    assert row.cells["value"] == Box(300, 50, 40, 20)
    assert row.box == Box(40, 50, 730, 20)


def test_a_row_comes_as_soon_as_the_next_line_begins():
    sheet = LabSheetReader("m")
    for text in line(0, *HEADER) + line(50, "Sodium", "150", "mmol/L", "137-147"):
        assert sheet.feed(text) == []
    [row] = sheet.feed(at(40, 100, "Potassium"))
    assert (row.analyte, row.flag) == ("Sodium", "high")


def test_a_printed_mark_that_disagrees_is_kept_but_does_not_decide():
    [row] = read(line(0, *HEADER), line(50, "Sodium", "140", "mmol/L", "137-147", "H"))
    assert row.flag == "normal" and "mark" in row.cells


@pytest.mark.parametrize(
    "header",
    [
        ["Analyte", "Value", "Units", "Reference"],
        ["TEST NAME", "Results", "Unit", "Ref. Range"],
        ["检验项目", "结果", "单位", "参考范围"],
        ["项目", "检验结果", "单位", "参考值", "标志"],
        ["Test", "Result", "", "Normal Range"],
    ],
)
def test_headers_in_both_languages(header):
    [row] = read(line(0, *header), line(50, "Glucose", "7.9", "", "3.9-6.1"))
    assert row.flag == "high"


def test_nothing_is_read_without_a_header():
    assert read(line(50, "Glucose", "7.9", "mmol/L", "3.9-6.1")) == []


def test_titles_details_and_footers_are_no_rows():
    rows = read(
        [at(40, 0, "City Hospital"), at(500, 0, "2026-03-01")],
        line(50, *HEADER),
        [at(40, 100, "Biochemistry")],
        line(150, "Glucose", "5.0", "mmol/L", "3.9-6.1"),
        [at(40, 200, "Results refer to this sample only")],
        [at(40, 250, "Page"), at(300, 250, "one of two")],
    )
    assert [row.analyte for row in rows] == ["Glucose"]


def test_value_and_unit_read_as_one_come_apart_by_the_columns():
    texts = [at(40, 50, "Glucose"), at(300, 50, "5.0 mmol/L", 18), at(560, 50, "3.9-6.1")]
    [row] = read(line(0, *HEADER), texts)
    assert (row.value, row.unit, row.flag) == ("5.0", "mmol/L", "normal")
    assert row.cells["value"].x == 300
    assert row.cells["value"].width < row.cells["unit"].x - 300 < 180


def test_headers_read_as_one_come_apart():
    header = [at(40, 0, "Test"), at(300, 0, "Result Unit", 15), at(560, 0, "Reference Range")]
    [row] = read(header, line(50, "Glucose", "7.9", "mmol/L", "3.9-6.1"))
    assert (row.value, row.unit, row.flag) == ("7.9", "mmol/L", "high")


def test_pieces_of_one_name_are_joined():
    texts = [at(40, 50, "White"), at(110, 51, "blood cells")]
    texts += line(50, "", "3.0", "10^9/L", "3.5-9.5")
    [row] = read(line(0, *HEADER), texts)
    assert (row.analyte, row.flag) == ("White blood cells", "low")


def test_an_empty_unit_does_not_shift_the_range():
    [row] = read(line(0, *HEADER), line(50, "HBsAg", "Negative", "", "Negative"))
    assert (row.value, row.unit, row.range, row.flag) == ("Negative", "", "Negative", "normal")


def test_right_aligned_and_centred_columns_keep_their_fields():
    right = {"value": 360, "unit": 500, "range": 710}
    texts = [at(40, 50, "ALT")]
    for field, text in (("value", "9"), ("unit", "U/L"), ("range", "9-50")):
        texts.append(at(right[field] - 10 * len(text), 50, text))
    [row] = read(line(0, *HEADER), texts)
    assert (row.value, row.unit, row.range, row.flag) == ("9", "U/L", "9-50", "normal")


def test_two_tables_side_by_side_give_two_rows_a_line():
    columns = (40, 200, 300, 400, 600, 760, 860, 960)
    header = line(0, *["项目", "结果", "单位", "参考值"] * 2, columns=columns)
    texts = ["钠", "150", "mmol/L", "137-147", "钾", "4.0", "mmol/L", "3.5-5.3"]
    rows = read(header, line(50, *texts, columns=columns))
    assert [(row.analyte, row.flag) for row in rows] == [("钠", "high"), ("钾", "normal")]


def test_columns_that_mean_nothing_to_us_are_left_out():
    columns = (10, 60, 240, 400, 500, 640)
    header = line(0, "No.", "Test", "Code", "Result", "Unit", "Range", columns=columns)
    rows = read(
        header, line(50, "1", "Glucose", "GLU", "7.9", "mmol/L", "3.9-6.1", columns=columns)
    )
    assert [(row.analyte, row.value, row.flag) for row in rows] == [("Glucose", "7.9", "high")]


def test_a_value_with_its_mark_in_the_same_cell():
    [row] = read(line(0, *HEADER), line(50, "Glucose", "7.9 ↑", "mmol/L", "3.9-6.1"))
    assert (row.value, row.number, row.flag) == ("7.9", 7.9, "high")
    assert row.cells["mark"].x > row.cells["value"].x


def test_what_cannot_be_parsed_is_unknown_and_not_guessed():
    [row] = read(line(0, *HEADER), line(50, "Glucose", "7.g", "mmol/L", "3.9-6.1"))
    assert (row.value, row.number, row.flag) == ("7.g", None, "unknown")


def test_ids_are_unique_within_the_item():
    rows = read(line(0, *HEADER), *[line(50 * n, f"A{n}", "1", "g/L", "0-2") for n in range(1, 6)])
    assert len({row.id for row in rows}) == 5


texts = st.builds(
    at,
    st.integers(0, 900),
    st.integers(0, 300),
    st.one_of(st.sampled_from([*HEADER, "5.6", "<3", "3-5", "mmol/L", "H"]), st.text(max_size=12)),
)


@given(st.lists(texts, max_size=25))
def test_no_arrangement_of_texts_breaks_the_reader(arrangement):
    for row in read(line(0, *HEADER), arrangement):
        assert row.analyte is not None and row.flag in {
            *("low", "normal", "high", "abnormal", "unknown")
        }
        assert "value" in row.cells and row.box.width >= 0


# -- names of several lines ----------------------------------------------------------------------


def names(*rows):
    return [row.analyte for row in read(*rows)]


def test_a_name_that_goes_on_below_its_value_is_one_name():
    rows = [line(50, "Low density", "2.1", "mmol/L", "0-3.4"), line(72, "Lipoprotein")]
    rows += [line(130, "Sodium", "140", "mmol/L", "137-147")]
    assert names(line(0, *HEADER), *rows) == ["Low density Lipoprotein", "Sodium"]


def test_a_name_that_begins_above_its_value_is_one_name():
    rows = [line(50, "25-hydroxy"), line(61, "", "75", "nmol/L", "50-125"), line(72, "vitamin D")]
    assert names(line(0, *HEADER), *rows) == ["25-hydroxy vitamin D"]


def test_a_name_that_fills_its_column_goes_on_beside_its_value():
    rows = [line(50, "Alkaline Phosphatase, to"), line(72, "Tal", "80", "U/L", "45-125")]
    assert names(line(0, *HEADER), *rows) == ["Alkaline Phosphatase, to Tal"]


@pytest.mark.parametrize("y", [72, 90, 110])
def test_a_title_between_two_rows_is_part_of_neither(y):
    """Dense sheets have their titles as near as their rows."""
    rows = [line(50, "Glucose", "5", "mmol/L", "4-6"), line(y, "Lipids")]
    rows += [line(y + 22, "HDL", "1.2", "mmol/L", ">1.04")]
    assert names(line(0, *HEADER), *rows) == ["Glucose", "HDL"]


def test_a_footer_is_no_part_of_the_last_name():
    rows = [line(24 * n, f"A{n}", "5", "mmol/L", "4-6") for n in (1, 2, 3)]
    assert names(line(0, *HEADER), *rows, line(96, "Reported by A. B.")) == ["A1", "A2", "A3"]


def test_a_footer_close_below_the_last_row_is_no_part_of_its_name():
    """Where rows are far apart, a line of text close to the last one looked like its name."""
    rows = [line(50 * n, f"A{n}", "5", "mmol/L", "4-6") for n in (1, 2)]
    footer = line(130, "Results refer to this sample only")
    assert names(line(0, *HEADER), *rows, footer) == ["A1", "A2"]


def test_a_row_waits_only_when_a_name_may_go_on():
    sheet = LabSheetReader("m")
    for text in line(0, *HEADER) + line(50, "Sodium", "150", "mmol/L", "137-147"):
        assert sheet.feed(text) == []
    assert sheet.feed(at(40, 72, "serum")) == []
    [row] = sheet.feed(at(40, 120, "Potassium"))
    assert row.analyte == "Sodium serum" and row.box.height == 42


def test_the_decimal_mark_of_a_sheet_is_learnt_from_its_rows():
    rows = [
        line(50, "Ferritin", "1,234", "ug/L", "2-5"),
        line(100, "Potassium", "4.10", "mmol/L", "3.50-5.30"),
        line(150, "Ferritin", "1,234", "ug/L", "2-5"),
    ]
    found = read(line(0, *HEADER), *rows)
    assert [(row.flag, row.number, row.doubt) for row in found] == [
        ("unknown", None, "separator"),
        ("normal", 4.1, None),
        ("high", 1234, None),
    ]


def test_a_mark_that_contradicts_is_said():
    [row] = read(line(0, *HEADER), line(50, "Sodium", "140", "mmol/L", "137-147", "H"))
    assert (row.flag, row.doubt) == ("normal", "mark")


def test_a_unit_behind_the_value_gets_its_own_cell():
    header = line(0, "Test", "Result", "", "Reference Range")
    [row] = read(header, line(50, "Glucose", "7.9 mmol/L", "", "3.9-6.1"))
    assert (row.value, row.unit, row.flag) == ("7.9", "mmol/L", "high")
    assert row.cells["unit"].x == 340


# -- drawn sheets through real workers ----------------------------------------------------------


@pytest.mark.parametrize(("seed", "language"), [(1, "en"), (2, "en"), (1, "zh")])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_sheet_is_read_with_boxes_text_and_exactly_its_flags(
    perception, tmp_path, seed, language
):
    sheet = render_sheet(seed, language)
    assert len(sheet.rows) >= 12 and len(sheet.out_of_range) == 4
    seen = await look(perception, media(tmp_path, sheet.png))
    texts = of(TextRow, seen)
    covered = right = 0
    for cell in sheet.cells:
        places = [(overlap(_plain(text.box), cell.box), text) for text in texts]
        best, nearest = max(places, key=lambda place: place[0])
        covered += best >= 0.5
        right += best >= 0.5 and reads_same(cell.text, nearest.text)
    assert covered >= 0.95 * len(sheet.cells)
    assert right >= 0.95 * len(sheet.cells)
    found = of(LabRow, seen)
    assert [(row.analyte, row.value, row.flag) for row in found] == [
        (row.analyte, row.value, row.flag) for row in sheet.rows
    ]
    assert [(row.number, row.low, row.high) for row in found] == [
        (row.number, row.low, row.high) for row in sheet.rows
    ]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_boxes_of_a_row_lie_on_its_cells(perception, tmp_path):
    sheet = render_sheet(3, "en")
    drawn = {(cell.field, cell.text): cell.box for cell in sheet.cells}
    seen = await look(perception, media(tmp_path, sheet.png))
    for row in of(LabRow, seen):
        assert overlap(_plain(row.cells["analyte"]), drawn["analyte", row.analyte]) > 0.5


@pytest.mark.asyncio(loop_scope="module")
async def test_a_sheet_photographed_lying_has_its_boxes_where_it_is_shown(perception, tmp_path):
    """L51, W74: the camera stores it turned (EXIF 6), the viewer shows it upright."""
    sheet = render_sheet(2, "en")
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = io.BytesIO()
    with Image.open(io.BytesIO(sheet.png)) as drawn:
        lying = drawn.transpose(Image.Transpose.ROTATE_90)
    lying.save(stored, "JPEG", quality=90, exif=exif)
    seen = await look(perception, media(tmp_path, stored.getvalue()))
    assert (seen[0].width, seen[0].height) == (sheet.width, sheet.height)
    drawn_at = {(cell.field, cell.text): cell.box for cell in sheet.cells}
    rows = of(LabRow, seen)
    assert [(row.analyte, row.flag) for row in rows] == [
        (row.analyte, row.flag) for row in sheet.rows
    ]
    for row in rows:
        assert overlap(_plain(row.cells["analyte"]), drawn_at["analyte", row.analyte]) > 0.5
    assert set(seen[-1].timings) >= {"first_level", "first_text", "first_lab_row", "total"}


@pytest.mark.asyncio(loop_scope="module")
async def test_text_and_rows_come_while_the_sheet_is_still_being_read(perception, tmp_path):
    seen = await look(perception, media(tmp_path, render_sheet(2, "en").png))
    order = [type(one) for one in seen]
    first_row = order.index(LabRow)
    assert order.index(TextRow) < first_row
    assert TextRow in order[first_row:], "a row waits for its own line only"
    progress = [one for one in of(Progress, seen) if one.stage == "ocr"]
    assert [one.done for one in progress] == sorted(one.done for one in progress)
    assert progress[0].done == 0 and progress[-1].done == progress[-1].total > 50


def _plain(box):
    return (box.x, box.y, box.width, box.height)


def test_a_row_with_decimal_commas_is_no_longer_lost():
    """Neither value nor range was a number then, so the row was taken for a footer."""
    [row] = read(line(0, *HEADER), line(50, "Kalium", "5,6", "mmol/L", "3,5-5,1"))
    assert (row.value, row.range) == ("5,6", "3,5-5,1")
    assert (row.number, row.low, row.high, row.flag) == (5.6, 3.5, 5.1, "high")
