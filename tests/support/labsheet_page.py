"""Draws pages of text at chosen places, plain or as a camera sees them."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont

from tests.support.labsheet_render import CHINESE_FONTS, LATIN_FONTS, Language

# Text and its tight box as x, y, width, height.
Drawn = tuple[str, tuple[float, float, float, float]]


def page_font(language: Language, size: int) -> ImageFont.FreeTypeFont:
    """Return a font of the system that has the language's letters and signs."""
    for path in LATIN_FONTS if language == "en" else CHINESE_FONTS:
        try:
            return ImageFont.truetype(path, size, index=2 if "CJK" in path else 0)
        except OSError:
            continue
    raise RuntimeError("a font for the pages is missing: install Debian's fonts-noto-cjk")


def draw_page(
    size: tuple[int, int], texts: list[tuple[int, int, str]], language: Language, font_px: int = 22
) -> tuple[Image.Image, list[Drawn]]:
    """Draw texts at their places; returns the page and where each text's ink lies."""
    page = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(page)
    font = page_font(language, font_px)
    drawn = []
    for x, y, text in texts:
        draw.text((x, y), text, fill="black", font=font)
        left, top, right, bottom = draw.textbbox((x, y), text, font=font)
        drawn.append((text, (left, top, right - left, bottom - top)))
    return page, drawn


def table(
    header: list[str], rows: list[list[str]], places: list[int], top: int = 40, step: int = 46
) -> list[tuple[int, int, str]]:
    """Return the texts of a table; a line break in a cell begins a line of its own."""
    texts = []
    y = top
    for line in [header, *rows]:
        height = max(cell.count("\n") for cell in line)
        for x, cell in zip(places, line, strict=True):
            for index, part in enumerate(cell.split("\n")):
                if part:
                    texts.append((x, y + 28 * index, part))
        y += step + 28 * height
    return texts
