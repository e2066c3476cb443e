"""Generated sheets: whatever the layout and the spelling, what is said of a row is true."""

from __future__ import annotations

import io
from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import Box, LabRow, TextRow
from engine.perception.labnumber import swapped
from engine.perception.labsheet import LabSheetReader
from tests.support.labsheet_page import draw_page
from tests.support.labsheet_page import table as lines_of
from tests.support.looking import look, media, of

LETTER, HEIGHT, ROW, LINE = 8, 16, 50, 22
# Where the columns of one table begin; the second table stands to the right of the first.
PLACES = {"analyte": 40, "value": 300, "unit": 420, "range": 560, "mark": 760}
TABLE_WIDTH = 860
HEADERS = {
    "en": {
        "analyte": "Test",
        "value": "Result",
        "unit": "Unit",
        "range": "Reference",
        "mark": "Flag",
    },
    "zh": {
        "analyte": "检验项目",
        "value": "结果",
        "unit": "单位",
        "range": "参考范围",
        "mark": "提示",
    },
}
NAMES = {
    "en": [
        "Potassium",
        "Low density lipoprotein",
        "Alkaline phosphatase total",
        "HbA1c",
        "Iron saturation",
    ],
    "zh": ["钾", "低密度脂蛋白胆固醇", "碱性磷酸酶测定", "糖化血红蛋白", "补体测定"],
}
UNITS = [
    "10^9/L",
    "×10⁹/L",
    "10*12/L",
    "µmol/L",
    "umol/L",
    "μg/L",
    "mmol/L",
    "%",
    "g/L",
    "IU/L",
    "",
]
CLEAN = {"×10⁹/L": "×10^9/L", "10*12/L": "10^12/L"}
BETWEEN = ["{0}-{1}", "{0} – {1}", "{0}~{1}", "({0}—{1})", "{0}～{1}", "{0} to {1}", "{0}至{1}"]
UNDER = ["<{1}", "≤{1}", "＜{1}", "≤ {1}", "up to {1}", "{1}以下"]
OVER = [">{0}", "≥{0}", "＞{0}", "> {0}", "大于{0}"]
WORDS = [("Negative", "neg", "normal"), ("阴性", "阳性", "abnormal"), ("Negative", "+", "abnormal")]
WORDS += [("Negative", "Trace", "abnormal"), ("阴性", "++", "abnormal"), ("neg", "(-)", "normal")]
MARKS = {"low": ["L", "↓", "偏低"], "high": ["H", "↑", "偏高"], "abnormal": ["*"], "normal": [""]}


@dataclass(frozen=True)
class Truth:
    """A row as it is printed and what it means; `lines` are those of its name."""

    lines: tuple[str, ...]
    value: str
    unit: str
    range: str
    flag: str
    mark: str
    number: float | None


@st.composite
def rows(draw, language, mark):
    name = draw(st.sampled_from(NAMES[language]))
    if language == "en":
        words = name.split()
        cut = draw(st.integers(1, len(words)))
        lines = tuple(filter(None, (" ".join(words[:cut]), " ".join(words[cut:]))))
    else:
        cut = draw(st.integers(1, len(name)))
        lines = tuple(filter(None, (name[:cut], name[cut:])))
    if draw(st.integers(0, 5)) == 0:
        limits, value, flag = draw(st.sampled_from(WORDS))
        return Truth(lines, value, "", limits, flag, "", None)
    places = draw(st.integers(0, 3))
    three = st.lists(
        st.integers(0, 9_999_999).map(lambda n: Decimal(n).scaleb(-places)), min_size=3, max_size=3
    )
    value, *bounds = draw(three)
    low, high = sorted(bounds)
    if draw(st.integers(0, 4)) == 0:
        value = draw(st.sampled_from([low, high]))
    forms, is_low, is_high = draw(
        st.sampled_from([(BETWEEN, True, True), (UNDER, False, True), (OVER, True, False)])
    )
    is_grouped = draw(st.booleans())

    def printed(number):
        english = f"{number:,}" if is_grouped else str(number)
        return english if mark == "." else swapped(english)

    flag = "low" if is_low and value < low else "high" if is_high and value > high else "normal"
    return Truth(
        lines,
        printed(value),
        draw(st.sampled_from(UNITS)),
        draw(st.sampled_from(forms)).format(printed(low), printed(high)),
        flag,
        draw(st.sampled_from(MARKS[flag])),
        float(value),
    )


@st.composite
def sheets(draw):
    language = draw(st.sampled_from(["en", "zh"]))
    # Chinese sheets have points; that is what the reader takes from their language.
    mark = "." if language == "zh" else draw(st.sampled_from(".,"))
    tables = draw(st.integers(1, 2))
    count = draw(st.integers(1, 6))
    truths = [draw(rows(language, mark)) for _ in range(tables * count)]
    layouts = ["value above", "value between", "value below"]
    # Beside each other only tops align; a Chinese name shows nowhere that it went on.
    layout = draw(st.sampled_from(layouts[: 1 if tables == 2 else 2 if language == "zh" else 3]))
    mark_beside = draw(st.booleans())
    return language, mark, tables, truths, layout, mark_beside


def texts_of(language, tables, truths, layout, mark_beside):
    """Yield the texts in reading order."""

    def at(table, field, y, text):
        x = PLACES[field] + table * TABLE_WIDTH
        box = Box(x, y, LETTER * max(1, len(text)), HEIGHT)
        return TextRow(media="m", id="t", box=box, text=text, score=1.0)

    texts = [
        at(table, field, 0, text)
        for table in range(tables)
        for field, text in HEADERS[language].items()
    ]
    y = ROW
    for start in range(0, len(truths), tables):
        line = truths[start : start + tables]
        for table, row in enumerate(line):
            shift = {"value above": 0, "value below": LINE, "value between": LINE / 2}[layout]
            shift = shift if len(row.lines) > 1 else 0
            for index, name in enumerate(row.lines):
                texts.append(at(table, "analyte", y + index * LINE, name))
            value = f"{row.value} {row.mark}".strip() if mark_beside else row.value
            fields = {"value": value, "unit": row.unit, "range": row.range}
            fields |= {} if mark_beside else {"mark": row.mark}
            texts += [at(table, name, y + shift, text) for name, text in fields.items() if text]
        y += ROW + LINE
    return sorted(texts, key=lambda text: (text.box.y, text.box.x))


def read(texts):
    sheet = LabSheetReader("m")
    made = [row for text in texts for row in sheet.feed(text)]
    return made + sheet.finish()


@settings(max_examples=300, deadline=None)
@given(sheets())
def test_every_row_of_a_generated_sheet_is_read_and_no_flag_is_wrong(sheet):
    language, mark, tables, truths, layout, mark_beside = sheet
    made = read(texts_of(language, tables, truths, layout, mark_beside))
    assert len(made) == len(truths)
    blank = " " if language == "en" else ""
    for row, true in zip(made, truths, strict=True):
        assert row.analyte == blank.join(true.lines)
        assert (row.value, row.range) == (true.value, true.range)
        assert row.unit == CLEAN.get(true.unit, true.unit)
        assert row.flag in (true.flag, "unknown")
        assert row.number in (true.number, None)
        assert row.doubt == "separator" or (row.flag, row.doubt) == (true.flag, None)


# -- drawn sheets through real workers ----------------------------------------------------------


async def rows_of(perception, folder, page):
    encoded = io.BytesIO()
    page.save(encoded, "PNG")
    return of(LabRow, await look(perception, media(folder, encoded.getvalue())))


def said(rows):
    return [(row.analyte, row.value, row.flag, row.number, row.doubt) for row in rows]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_drawn_sheet_with_decimal_commas_wraps_and_marks(perception, tmp_path):
    header = ["Test", "Result", "Unit", "Reference Range", "Flag"]
    rows = [
        ["White blood cells", "11,4", "10^9/L", "4,0–10,0", "↑"],
        ["Creatinine", "171", "µmol/L", "57–97", "H"],
        ["Low density\nlipoprotein cholesterol", "3,4", "mmol/L", "≤3,4", ""],
        ["Iron", "12,5", "μmol/L", "≥10,0", ""],
        ["Ferritin", "1.234,5", "ug/L", "30,0~400,0", "*"],
        ["D-dimer", "1,234", "mg/L", "up to 0,5", "↑"],
        ["Urine protein", "++", "", "Negative", ""],
        ["Platelets", "90 ↓", "10⁹/L", "125–350", ""],
    ]
    texts = lines_of(header, rows, [40, 330, 470, 640, 880])
    page, _ = draw_page((1000, 560), texts, "en")
    found = await rows_of(perception, tmp_path, page)
    assert said(found) == [
        ("White blood cells", "11,4", "high", 11.4, None),
        ("Creatinine", "171", "high", 171, None),
        ("Low density lipoprotein cholesterol", "3,4", "normal", 3.4, None),
        ("Iron", "12,5", "normal", 12.5, None),
        ("Ferritin", "1.234,5", "high", 1234.5, None),
        ("D-dimer", "1,234", "high", 1.234, None),
        ("Urine protein", "++", "abnormal", None, None),
        # The raised 9 is not in the recogniser's alphabet.
        ("Platelets", "90", "low", 90, "unit"),
    ]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_drawn_chinese_sheet_of_two_tables(perception, tmp_path):
    header = ["项目", "结果", "单位", "参考范围"] * 2
    rows = [
        ["糖化血红蛋白", "7.4↑", "%", "4.0～6.0", "钠", "150 H", "mmol/L", "137——147"],
        ["低密度脂蛋白\n胆固醇测定", "2.10", "mmol/L", "＜3.40", "钾", "3.5", "mmol/L", "3.5～5.3"],
        ["尿蛋白", "阳性(++)", "", "阴性", "尿酮体", "阴性", "", "阴性(-)"],
    ]
    texts = lines_of(header, rows, [30, 250, 360, 500, 720, 940, 1050, 1190])
    page, _ = draw_page((1400, 320), texts, "zh")
    found = await rows_of(perception, tmp_path, page)
    assert said(found) == [
        ("糖化血红蛋白", "7.4", "high", 7.4, None),
        ("钠", "150", "high", 150, None),
        ("低密度脂蛋白胆固醇测定", "2.10", "normal", 2.1, None),
        ("钾", "3.5", "normal", 3.5, None),
        ("尿蛋白", "阳性(++)", "abnormal", None, None),
        ("尿酮体", "阴性", "normal", None, None),
    ]
