"""Where the ink of a line of text is: detectors pad their boxes and join neighbouring cells."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

# Two pieces further apart than this many line heights are two cells; a word space is a third.
_CELL_GAP = 1.2

# Ink is what differs from the paper by at least this share of the strongest difference.
_INK_SHARE = 0.25
_FAINTEST_INK = 24

# A rule has ink on at least this share of its length, and less than that beside it.
_BROKEN_RULE = 0.4
_BESIDE_RULE = 0.25


@dataclass(frozen=True)
class Rect:
    """Half-open pixel ranges `[x0, x1)` and `[y0, y1)`."""

    x0: int
    y0: int
    x1: int
    y1: int

    @property
    def width(self) -> int:
        return self.x1 - self.x0

    @property
    def height(self) -> int:
        return self.y1 - self.y0


def tight_pieces(pixels: NDArray[np.uint8], padded: Rect) -> list[Rect]:
    """Return the boxes of the ink inside a detector's box, left to right, one for each cell.

    `pixels` is [height, width, 3]. Ruled lines are no ink. When there is no clear ink, the padded
    box itself comes back.
    """
    margin = max(2, padded.height // 4)
    x0, y0 = max(0, padded.x0 - margin), max(0, padded.y0 - margin)
    region = pixels[y0 : padded.y1 + margin, x0 : padded.x1 + margin]
    if region.size == 0:
        return [padded]
    gray = cv2.cvtColor(np.ascontiguousarray(region), cv2.COLOR_RGB2GRAY).astype(np.int16)
    contrast = np.abs(gray - int(np.median(gray)))
    strongest = int(contrast.max())
    if strongest < 2 * _FAINTEST_INK:
        return [padded]
    ink = (contrast >= max(_FAINTEST_INK, _INK_SHARE * strongest)).astype(np.uint8)
    upright = _vertical_rules(ink)
    level = _horizontal_rules(ink, padded.height) | _broken_rules(ink, margin)
    letters = np.where(upright | level, 0, ink).astype(np.uint8)
    inner = Rect(padded.x0 - x0, padded.y0 - y0, padded.x1 - x0, padded.y1 - y0)
    glyphs = _glyphs(letters, inner)
    if not glyphs:
        return [padded]
    walls = np.flatnonzero(upright.any(axis=0))
    return [
        Rect(piece.x0 + x0, piece.y0 + y0, piece.x1 + x0, piece.y1 + y0)
        for piece in _joined(glyphs, inner.height, walls)
    ]


def _vertical_rules(ink: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Strokes as high as the whole region, which has a margin that no letter fills."""
    kernel = np.ones((max(3, int(ink.shape[0] * 0.95)), 1), np.uint8)
    return _opened(ink, kernel, np.ones((1, 3), np.uint8))


def _horizontal_rules(ink: NDArray[np.uint8], line_height: int) -> NDArray[np.uint8]:
    """Strokes across the whole region or longer than twice the line height; a dash is neither."""
    length = min(2 * line_height, int(ink.shape[1] * 0.95))
    return _opened(ink, np.ones((1, max(3, length)), np.uint8), np.ones((3, 1), np.uint8))


def _broken_rules(ink: NDArray[np.uint8], margin: int) -> NDArray[np.uint8]:
    """Thin lines of many pieces, as blur and compression leave of rules.

    They go on into both margins, where no letter stands.
    """
    thick = cv2.dilate(ink, np.ones((3, 1), np.uint8))
    share = thick.mean(axis=1)
    # What lies three rows above and below is another line or nothing.
    beside = np.pad(ink.mean(axis=1), 3)
    is_thin = np.maximum(beside[:-6], beside[6:]) < _BESIDE_RULE
    goes_on = thick[:, :margin].any(axis=1) & thick[:, -margin:].any(axis=1)
    rows = ((share >= _BROKEN_RULE) & is_thin & goes_on).astype(np.uint8)[:, None]
    wide = cv2.dilate(rows, np.ones((3, 1), np.uint8))
    return np.repeat(np.asarray(wide, dtype=np.uint8).reshape(-1, 1), ink.shape[1], axis=1)


def _opened(
    ink: NDArray[np.uint8], kernel: NDArray[np.uint8], across: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    if kernel.shape[0] > ink.shape[0] or kernel.shape[1] > ink.shape[1]:
        return np.zeros_like(ink)
    # A rule that climbs by a pixel on its way, as on a page not quite straight, is one as well.
    rules = cv2.morphologyEx(cv2.dilate(ink, across), cv2.MORPH_OPEN, kernel)
    # One pixel more takes the soft edge of an antialiased rule along.
    return np.asarray(cv2.dilate(rules, np.ones((3, 3), np.uint8)), dtype=np.uint8)


def _glyphs(ink: NDArray[np.uint8], inner: Rect) -> list[Rect]:
    """Connected strokes whose centre lies in the detector's box; specks of 1 or 2 px are dirt."""
    _, _, stats, centres = cv2.connectedComponentsWithStats(ink, connectivity=8)
    found = []
    for (x, y, width, height, area), (cx, cy) in zip(stats[1:], centres[1:], strict=True):
        if area < 3 or not (inner.x0 <= cx <= inner.x1 and inner.y0 <= cy <= inner.y1):
            continue
        found.append(Rect(int(x), int(y), int(x + width), int(y + height)))
    return sorted(found, key=lambda glyph: glyph.x0)


def _joined(glyphs: list[Rect], line_height: int, walls: NDArray[np.intp]) -> list[Rect]:
    """Join glyphs to pieces; a wide gap or a ruled line between two of them parts them."""
    height = max(max(g.y1 for g in glyphs) - min(g.y0 for g in glyphs), line_height // 2)
    pieces = [glyphs[0]]
    for glyph in glyphs[1:]:
        last = pieces[-1]
        walled = bool(((walls >= last.x1) & (walls < glyph.x0)).any())
        if walled or glyph.x0 - last.x1 > _CELL_GAP * height:
            pieces.append(glyph)
        else:
            pieces[-1] = Rect(
                last.x0,
                min(last.y0, glyph.y0),
                max(last.x1, glyph.x1),
                max(last.y1, glyph.y1),
            )
    return pieces
