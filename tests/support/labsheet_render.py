"""Draws lab sheets and photographs of which every drawn thing is known."""

from __future__ import annotations

import io
import random
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Language = Literal["en", "zh"]

# A Chinese font comes with the system: Debian `fonts-noto-cjk` or `fonts-wqy-microhei`, or macOS.
CHINESE_FONTS = (
    "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/truetype/noto/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",
    "/System/Library/Fonts/PingFang.ttc",
    "/System/Library/Fonts/STHeiti Medium.ttc",
)


LATIN_FONTS = (
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf",
    "/System/Library/Fonts/Supplemental/Arial Unicode.ttf",
)


@dataclass(frozen=True)
class DrawnCell:
    """A text and the tight box of its ink: x, y, width, height in pixels."""

    text: str
    box: tuple[float, float, float, float]
    field: str


@dataclass(frozen=True)
class TrueRow:
    """What one row of the sheet says and how it must be flagged."""

    analyte: str
    value: str
    unit: str
    range: str
    flag: str
    number: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class RenderedSheet:
    """A sheet as PNG, all that was drawn on it, and its rows from the top."""

    png: bytes
    width: int
    height: int
    cells: list[DrawnCell]
    rows: list[TrueRow]

    @property
    def out_of_range(self) -> list[TrueRow]:
        return [row for row in self.rows if row.flag != "normal"]


# (English, Chinese, unit, low, high, decimals); None for a missing bound.
_ANALYTES: list[tuple[str, str, str, float | None, float | None, int]] = [
    ("White blood cells", "白细胞计数", "10^9/L", 3.5, 9.5, 2),
    ("Red blood cells", "红细胞计数", "10^12/L", 4.3, 5.8, 2),
    ("Haemoglobin", "血红蛋白", "g/L", 130, 175, 0),
    ("Haematocrit", "红细胞压积", "%", 40.0, 50.0, 1),
    ("Platelets", "血小板计数", "10^9/L", 125, 350, 0),
    ("Neutrophils", "中性粒细胞", "%", 40.0, 75.0, 1),
    ("Lymphocytes", "淋巴细胞", "%", 20.0, 50.0, 1),
    ("Sodium", "钠", "mmol/L", 137, 147, 0),
    ("Potassium", "钾", "mmol/L", 3.5, 5.3, 2),
    ("Chloride", "氯", "mmol/L", 99, 110, 0),
    ("Calcium", "钙", "mmol/L", 2.11, 2.52, 2),
    ("Glucose", "葡萄糖", "mmol/L", 3.9, 6.1, 2),
    ("Urea", "尿素", "mmol/L", 3.1, 8.0, 1),
    ("Creatinine", "肌酐", "umol/L", 57, 97, 0),
    ("Uric acid", "尿酸", "umol/L", 208, 428, 0),
    ("Total protein", "总蛋白", "g/L", 65.0, 85.0, 1),
    ("Albumin", "白蛋白", "g/L", 40.0, 55.0, 1),
    ("Total bilirubin", "总胆红素", "umol/L", None, 26.0, 1),
    ("ALT", "丙氨酸氨基转移酶", "U/L", 9, 50, 0),
    ("AST", "天门冬氨酸氨基转移酶", "U/L", 15, 40, 0),
    ("Triglycerides", "甘油三酯", "mmol/L", None, 1.70, 2),
    ("HDL cholesterol", "高密度脂蛋白胆固醇", "mmol/L", 1.04, None, 2),
    ("LDL cholesterol", "低密度脂蛋白胆固醇", "mmol/L", None, 3.40, 2),
    ("C-reactive protein", "C反应蛋白", "mg/L", None, 10.0, 1),
    ("HbA1c", "糖化血红蛋白", "%", 4.0, 6.0, 1),
    ("Ferritin", "铁蛋白", "ug/L", 30.0, 400.0, 1),
    ("TSH", "促甲状腺激素", "mIU/L", 0.27, 4.20, 2),
]

_QUALITATIVE = [
    ("HBsAg", "乙肝表面抗原"),
    ("Urine ketones", "尿酮体"),
    ("Urine protein", "尿蛋白"),
]

_HEADERS = {
    "en": [
        ("Test", "Result", "Unit", "Reference Range", "Flag"),
        ("Analyte", "Value", "Units", "Reference", "Flag"),
    ],
    "zh": [
        ("检验项目", "结果", "单位", "参考范围", "提示"),
        ("项目名称", "检验结果", "单位", "参考值", "标志"),
    ],
}
_TITLES = {
    "en": ("City Hospital Laboratory", "Patient: A-1043", "Specimen: serum"),
    "zh": ("市中心医院检验报告单", "样本编号：A1043", "标本：血清"),
}
_FOOTERS = {"en": "Results refer to this sample only", "zh": "本报告仅对该样本负责"}
_WORDS = {"en": ("Negative", "Positive"), "zh": ("阴性", "阳性")}


def render_sheet(
    seed: int, language: Language, analytes: int = 14, out_of_range: int = 4
) -> RenderedSheet:
    """Draw a sheet with exactly `out_of_range` rows whose value lies outside its range.

    One row is qualitative; at most one range has an en dash, which OCR reads as a hyphen; one
    value lies on its bound and is normal; marks are printed for out-of-range rows on half of
    the seeds. Raises `ValueError` beyond 27 analytes.
    """
    if not 2 <= analytes <= len(_ANALYTES) + 1 or not 0 <= out_of_range <= analytes - 1:
        raise ValueError("the sheet has no room for so many rows")
    chance = random.Random(f"{seed}/{language}")
    rows = _true_rows(chance, language, analytes, out_of_range)
    return _draw(chance, language, rows)


def reads_same(drawn: str, read: str) -> bool:
    """Whether a reader got the text right; blanks, full-width forms and dashes do not count."""
    return _folded(drawn) == _folded(read)


def overlap(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> float:
    """Return intersection over union of two boxes given as x, y, width, height."""
    across = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    down = min(one[1] + one[3], other[1] + other[3]) - max(one[1], other[1])
    shared = max(0.0, across) * max(0.0, down)
    return shared / (one[2] * one[3] + other[2] * other[3] - shared)


def _folded(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).replace("–", "-").split())


def _true_rows(
    chance: random.Random, language: Language, analytes: int, out_of_range: int
) -> list[TrueRow]:
    chosen = chance.sample(_ANALYTES, analytes - 1)
    outside = set(chance.sample(range(analytes), out_of_range))
    qualitative = chance.randrange(analytes)
    on_bound = chance.choice([i for i in range(analytes) if i not in outside | {qualitative}])
    dashed = chance.randrange(analytes)
    rows = []
    for index in range(analytes):
        if index == qualitative:
            english, chinese = chance.choice(_QUALITATIVE)
            normal, abnormal = _WORDS[language]
            value = abnormal if index in outside else normal
            flag = "abnormal" if index in outside else "normal"
            name = english if language == "en" else chinese
            rows.append(TrueRow(name, value, "", normal, flag, None, None, None))
            continue
        english, chinese, unit, low, high, decimals = chosen.pop()
        flag, number = _number(chance, low, high, decimals, index in outside, index == on_bound)
        if low is None:
            limits = chance.choice(("<{1}", "≤{1}"))
        elif high is None:
            limits = chance.choice((">{0}", "≥{0}"))
        else:
            limits = (
                "{0}–{1}" if index == dashed else chance.choice(("{0}-{1}", "{0} - {1}", "{0}~{1}"))
            )
        shown = [f"{bound or 0:.{decimals}f}" for bound in (low, high)]
        name = english if language == "en" else chinese
        value = f"{number:.{decimals}f}"
        limits = limits.format(*shown)
        rows.append(TrueRow(name, value, unit, limits, flag, float(value), low, high))
    return rows


def _number(
    chance: random.Random,
    low: float | None,
    high: float | None,
    decimals: int,
    is_outside: bool,
    is_on_bound: bool,
) -> tuple[str, float]:
    if is_outside:
        goes_high = high is not None and (low is None or chance.random() < 0.5)
        if goes_high:
            assert high is not None
            return "high", round(high * chance.uniform(1.15, 1.8), decimals)
        assert low is not None
        return "low", round(low * chance.uniform(0.4, 0.85), decimals)
    if is_on_bound:
        return "normal", high if high is not None else low or 0.0
    bottom = low if low is not None else (high or 0) * 0.3
    top = high if high is not None else bottom * 1.8
    inner = chance.uniform(bottom + (top - bottom) * 0.1, top - (top - bottom) * 0.1)
    return "normal", round(inner, decimals)


def _draw(chance: random.Random, language: Language, rows: list[TrueRow]) -> RenderedSheet:
    size = chance.choice((20, 22, 24))
    font, bold = _font(language, size), _font(language, size + 8)
    step = int(size * 2.1)
    width = 44 * size
    height = (len(rows) + 6) * step + 80
    picture = Image.new("RGB", (width, height), "white")
    sheet = _Sheet(ImageDraw.Draw(picture))
    title, *details = _TITLES[language]
    sheet.write(2 * size, step // 2, title, bold, "title")
    for index, detail in enumerate(details):
        sheet.write(2 * size + index * 18 * size, 2 * step, detail, font, "detail")
    columns = [size * at for at in (2, 16, 22, 29, 40)]
    top = int(3.4 * step)
    header = chance.choice(_HEADERS[language])
    for x, text in zip(columns, header, strict=True):
        sheet.write(x, top, text, font, "header")
    if has_rules := chance.random() < 0.5:
        sheet.rule(size, top - step // 4, width - size)
    has_marks = chance.random() < 0.5
    for index, row in enumerate(rows):
        y = top + (index + 1) * step
        if has_rules:
            sheet.rule(size, y - step // 4, width - size)
        fields = {"analyte": row.analyte, "value": row.value, "unit": row.unit, "range": row.range}
        for x, (field, text) in zip(columns, fields.items(), strict=False):
            sheet.write(x, y, text, font, field)
        if has_marks and row.flag in ("high", "low"):
            sheet.write(columns[4], y, row.flag[0].upper(), font, "mark")
    sheet.write(2 * size, top + (len(rows) + 1) * step + 10, _FOOTERS[language], font, "footer")
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    return RenderedSheet(encoded.getvalue(), width, height, sheet.cells, rows)


class _Sheet:
    def __init__(self, draw: ImageDraw.ImageDraw) -> None:
        self._draw = draw
        self.cells: list[DrawnCell] = []

    def write(self, x: int, y: int, text: str, font: ImageFont.FreeTypeFont, field: str) -> None:
        if not text:
            return
        self._draw.text((x, y), text, fill="black", font=font)
        left, top, right, bottom = self._draw.textbbox((x, y), text, font=font)
        self.cells.append(DrawnCell(text, (left, top, right - left, bottom - top), field))

    def rule(self, left: int, y: int, right: int) -> None:
        self._draw.line((left, y, right, y), fill=(120, 120, 120), width=1)


def _font(language: Language, size: int) -> ImageFont.FreeTypeFont:
    # The font inside Pillow has neither a dash nor comparison signs; the Chinese ones have both.
    for path in LATIN_FONTS if language == "en" else ():
        if Path(path).exists():
            return ImageFont.truetype(path, size)
    for path in CHINESE_FONTS:
        if Path(path).exists():
            # Index 2 of the Noto collection is Simplified Chinese; single-font files have only 0.
            return ImageFont.truetype(path, size, index=2 if "CJK" in path else 0)
    raise RuntimeError("a font for the sheets is missing: install Debian's fonts-noto-cjk")


def photo(
    width: int,
    height: int,
    orientation: int = 1,
    target_bytes: int | None = None,
    seed: int = 0,
) -> bytes:
    """Return a synthetic photograph as JPEG: soft shapes with noise, EXIF orientation as told.

    `width` and `height` are those of the stored pixels, before orientation. With `target_bytes`
    the noise is chosen so that the file has that size within 10 %.
    """
    noise = np.random.default_rng(seed).standard_normal((height, width, 1), np.float32)
    x, y = np.linspace(0, 1, width)[None, :], np.linspace(0, 1, height)[:, None]
    soft = np.stack([160 * x + 40 * y, 90 + 80 * y * np.ones_like(x), 200 - 140 * x * y], axis=-1)
    shapes = Image.fromarray(soft.astype(np.uint8))
    draw = ImageDraw.Draw(shapes)
    chance = random.Random(seed)
    for _ in range(24):
        left, top = chance.randrange(width), chance.randrange(height)
        side = chance.randrange(max(2, min(width, height) // 6))
        colour = tuple(chance.randrange(256) for _ in range(3))
        draw.ellipse((left, top, left + side, top + side), fill=colour)
    base = np.asarray(shapes).astype(np.float32)
    if target_bytes is None:
        return _jpeg(base, orientation)
    # Searched on a part with the same share of the target, because a full one takes 0.3 s a try.
    part = (slice(0, min(height, 640)), slice(0, min(width, 640)))
    share = target_bytes * base[part].size / base.size
    quiet, loud = 0.0, 255.0
    for _ in range(12):
        strength = (quiet + loud) / 2
        size = len(_jpeg(base[part] + strength * noise[part], orientation))
        quiet, loud = (strength, loud) if size < share else (quiet, strength)
    return _jpeg(base + quiet * noise, orientation)


def _jpeg(pixels: np.ndarray, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(
        encoded, "JPEG", quality=92, exif=exif
    )
    return encoded.getvalue()
