"""How a page lies in its picture, told by its lines of text; and the page laid straight."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from engine.api import Box

Pixels = NDArray[np.uint8]
# Four corners, [4, 2] as x and y, clockwise from top left.
Quad = NDArray[np.float32]
Floats = NDArray[np.float64]

# Boxes of words have tilts of their own; these are wide enough, and so many are a page.
_WIDE = 3.0
_FEWEST = 5
# Beyond this a page is not tilted but turned, which its text does not tell.
_STEEPEST = math.tan(math.radians(12))
# A page whose corners move by less than this share of a line height is straight enough.
_STRAIGHT = 0.2
# What is no mild perspective: the page would take more than this of the picture's pixels.
_MOST_AREA = 2.0
# Slopes are no finer than this: a pixel of the detector's on a box of 250.
_SLOPE_STEP = 0.004
# Half of the boxes fit within this, or they are signs of a street and no page.
_MOST_OFF = 0.02
# A column's edge: so many boxes within this share of a line height of one straight line.
_EDGE_BOXES = 5
_EDGE_SHARE = 0.35
_MOST_EDGES = 8
# How far a column may lean beside the perpendicular of the lines.
_MOST_LEAN = 0.15
# Pairs of boxes are tried as edges; beyond this the boxes are thinned out.
_MOST_POINTS = 160


@dataclass(frozen=True)
class Tilt:
    """How picture coordinates become those of the straight page of `width` x `height` pixels."""

    matrix: Floats
    width: int
    height: int

    def flatten(self, pixels: Pixels) -> Pixels:
        """Return the page laid straight."""
        size = (self.width, self.height)
        flat = cv2.warpPerspective(
            np.ascontiguousarray(pixels),
            self.matrix,
            size,
            flags=cv2.INTER_CUBIC,
            borderMode=cv2.BORDER_REPLICATE,
        )
        return np.asarray(flat, dtype=np.uint8)

    def flat_quad(self, quad: Quad) -> Quad:
        """Return a box of the picture on the straight page."""
        return _mapped(self.matrix, quad.astype(np.float64)).astype(np.float32)

    def in_picture(self, box: Box, width: int, height: int) -> Box:
        """Return the upright box around a box of the page, in a picture of that size."""
        right, bottom = box.x + box.width, box.y + box.height
        corners = np.array([[box.x, box.y], [right, box.y], [right, bottom], [box.x, bottom]])
        placed = _mapped(np.linalg.inv(self.matrix).astype(np.float64), corners)
        x0, y0 = np.clip(placed.min(axis=0), 0, (width - 1, height - 1)).tolist()
        x1, y1 = np.clip(placed.max(axis=0), (x0 + 1, y0 + 1), (width, height)).tolist()
        return Box(x0, y0, x1 - x0, y1 - y0)


def tilt_of(quads: list[Quad], width: int, height: int) -> Tilt | None:
    """Return how the page lies; `None` when it lies straight, or its text does not tell."""
    wide = [quad for quad in quads if _width(quad) >= _WIDE * _height(quad)]
    if len(wide) < _FEWEST:
        return None
    line_height = float(np.median([_height(quad) for quad in wide]))
    middle = np.array([width / 2, height / 2])
    rows = _row_slopes(wide, middle, height)
    if rows is None or abs(rows[0]) > _STEEPEST:
        return None
    columns = _column_slopes(quads, middle, width, line_height, -rows[0])
    corners = _page_corners(rows, columns, width, height)
    if corners is None:
        return None
    return _tilt(corners, width, height, line_height)


def _width(quad: Quad) -> float:
    return float(np.linalg.norm(quad[1] - quad[0]))


def _height(quad: Quad) -> float:
    return float(np.linalg.norm(quad[3] - quad[0]))


def _row_slopes(wide: list[Quad], middle: Floats, height: int) -> tuple[float, float] | None:
    """Return how lines climb in the middle of the picture, and how that changes over its height.

    `None` when they are not the lines of one page.
    """
    along = np.array([(quad[1] - quad[0] + quad[2] - quad[3]) / 2 for quad in wide])
    centres = np.array([quad.mean(axis=0) for quad in wide], dtype=np.float64)
    slopes = (along[:, 1] / np.maximum(along[:, 0], 1.0)).astype(np.float64)
    # Where the line of a box crosses the middle of the picture.
    crossings = centres[:, 1] - slopes * (centres[:, 0] - middle[0])
    places, weights = (crossings - middle[1]) / height, along[:, 0].astype(np.float64)
    slope, change = _fitted(places, slopes, weights)
    off = np.abs(slopes - slope - change * places)
    return (slope, change) if _weighted_median(off, weights) <= _MOST_OFF else None


def _column_slopes(
    quads: list[Quad], middle: Floats, width: int, line_height: float, lean: float
) -> tuple[float, float]:
    """Return how columns lean in the middle of the picture, and how that changes over its width."""
    places: list[float] = []
    slopes: list[float] = []
    weights: list[float] = []
    for first, last in ((0, 3), (1, 2)):
        points = np.array([(quad[first] + quad[last]) / 2 for quad in quads], dtype=np.float64)
        for slope, at, count in _edges(points, middle[1], line_height, lean):
            places.append((at - middle[0]) / width)
            slopes.append(slope)
            weights.append(count)
    if not places:
        return lean, 0.0
    return _fitted(np.array(places), np.array(slopes), np.array(weights))


def _edges(
    points: Floats, middle_y: float, line_height: float, lean: float
) -> list[tuple[float, float, float]]:
    """Find straight edges of columns: lean, x at `middle_y`, and how many boxes stand on it."""
    if len(points) > _MOST_POINTS:
        points = points[:: math.ceil(len(points) / _MOST_POINTS)]
    found: list[tuple[float, float, float]] = []
    reach = 0.2 * float(np.ptp(points[:, 1])) if len(points) else 0.0
    while len(points) >= _EDGE_BOXES and len(found) < _MOST_EDGES:
        dx = points[None, :, 0] - points[:, None, 0]
        dy = points[None, :, 1] - points[:, None, 1]
        far = dy > max(reach, 3 * line_height)
        slopes = np.where(far, dx / np.where(far, dy, 1.0), np.inf)
        pairs = np.argwhere(np.abs(slopes - lean) <= _MOST_LEAN)
        if not len(pairs):
            break
        tried = slopes[pairs[:, 0], pairs[:, 1]]
        starts = points[pairs[:, 0]]
        away = points[None, :, 0] - (
            starts[:, None, 0] + tried[:, None] * (points[None, :, 1] - starts[:, None, 1])
        )
        on = np.abs(away) <= _EDGE_SHARE * line_height
        best = int(on.sum(axis=1).argmax())
        edge = on[best]
        if edge.sum() < _EDGE_BOXES:
            break
        slope, at = np.polyfit(points[edge, 1] - middle_y, points[edge, 0], 1)
        found.append((float(slope), float(at), float(edge.sum())))
        points = points[~edge]
    return found


def _fitted(places: Floats, values: Floats, weights: Floats) -> tuple[float, float]:
    """Return value and change of a line through the values; what lies far off counts little."""
    if float(np.ptp(places)) < 0.2 or len(values) < 3:
        return _weighted_median(values, weights), 0.0
    # Boxes have edges of whole pixels, so that many are level on a page that is not; the median
    # of the changes between far ones begins near enough.
    apart = places[None, :] - places[:, None]
    far = apart > 0.15
    change = float(np.median(((values[None, :] - values[:, None]) / np.where(far, apart, 1))[far]))
    fit = np.array([change, _weighted_median(values - change * places, weights)])
    for _ in range(8):
        off = np.abs(values - np.polyval(fit, places))
        scale = max(_weighted_median(off, weights), _SLOPE_STEP)
        fit = np.polyfit(places, values, 1, w=np.sqrt(weights / np.maximum(1.0, off / scale) ** 2))
    return float(fit[1]), float(fit[0])


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(passed, passed[-1] / 2)])


def _page_corners(
    rows: tuple[float, float], columns: tuple[float, float], width: int, height: int
) -> Floats | None:
    """Return where two lines of text and two columns' edges cross: a rectangle of the page."""
    top, bottom = rows[0] - rows[1] / 2, rows[0] + rows[1] / 2
    left, right = columns[0] - columns[1] / 2, columns[0] + columns[1] / 2

    def crossing(slope: float, y: float, lean: float, x: float) -> tuple[float, float]:
        # y' = y + slope (x' - width / 2) and x' = x + lean (y' - height / 2)
        at_x = (x + lean * (y - slope * width / 2 - height / 2)) / (1 - lean * slope)
        return at_x, y + slope * (at_x - width / 2)

    corners = np.array(
        [
            crossing(top, 0, left, 0),
            crossing(top, 0, right, width),
            crossing(bottom, height, right, width),
            crossing(bottom, height, left, 0),
        ]
    )
    is_sound = cv2.isContourConvex(corners.astype(np.float32))
    return corners if is_sound and np.isfinite(corners).all() else None


def _tilt(corners: Floats, width: int, height: int, line_height: float) -> Tilt | None:
    sides = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
    across, down = (sides[0] + sides[2]) / 2, (sides[1] + sides[3]) / 2
    page = np.array([[0, 0], [across, 0], [across, down], [0, down]], np.float32)
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), page).astype(np.float64)
    picture = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64)
    placed = _mapped(matrix, picture)
    moved = placed - picture
    if float(np.abs(moved - moved.mean(axis=0)).max()) < _STRAIGHT * line_height:
        return None
    low, high = placed.min(axis=0), placed.max(axis=0)
    size = np.ceil(high - low).astype(int)
    if size[0] * size[1] > _MOST_AREA * width * height:
        return None
    shift = np.array([[1, 0, -low[0]], [0, 1, -low[1]], [0, 0, 1]])
    return Tilt(shift @ matrix, int(size[0]), int(size[1]))


def _mapped(matrix: Floats, points: Floats) -> Floats:
    placed = np.concatenate([points, np.ones((len(points), 1))], axis=1) @ matrix.T
    return np.asarray(placed[:, :2] / placed[:, 2:], dtype=np.float64)
