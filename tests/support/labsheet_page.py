"""Draws pages of text at chosen places, plain or as a camera sees them."""

from __future__ import annotations

import cv2
import numpy as np
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


def photographed(
    page: Image.Image,
    drawn: list[Drawn],
    *,
    degrees: float = 0.0,
    keystone: float = 0.0,
    lean: float = 0.0,
    margin: float = 0.06,
) -> tuple[Image.Image, list[Drawn]]:
    """Lay the page on a dark table and look at it askew; returns the picture and where texts lie.

    The page is turned by `degrees`; `keystone` is by how much of its width the far edge looks
    shorter than the near one, `lean` by how much of its height the right edge than the left one.
    """
    width, height = page.size
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64)
    inset, drop = keystone * width / 2, lean * height / 2
    seen = corners + [[inset, 0], [-inset, drop], [0, -drop], [0, 0]]
    angle = np.radians(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    seen = (seen - seen.mean(axis=0)) @ turn
    seen = seen - seen.min(axis=0) + margin * width
    size = np.ceil(seen.max(axis=0) + margin * width).astype(int)
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), seen.astype(np.float32))
    picture = cv2.warpPerspective(
        np.asarray(page),
        matrix,
        tuple(size.tolist()),
        flags=cv2.INTER_AREA,
        borderValue=(70, 60, 50),
    )
    placed = []
    for text, (x, y, across, down) in drawn:
        box = np.array([[x, y], [x + across, y], [x + across, y + down], [x, y + down]])
        at = cv2.perspectiveTransform(box[None].astype(np.float64), matrix)[0]
        (left, top), (right, bottom) = at.min(axis=0), at.max(axis=0)
        placed.append((text, (left, top, right - left, bottom - top)))
    return Image.fromarray(picture), placed
