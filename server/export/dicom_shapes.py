"""Shapes as DICOM's graphic data: the same for SR and for presentation states.

Nothing is shifted. SCOORD (PS3.3 C.18.6.1.2) and the units PIXEL of a graphic annotation (C.10.5)
both say: the origin at the top left corner of the first pixel is 0.0, 0.0, the bottom right corner
of that pixel is 1.0, 1.0; column first. A frame's number counts from 1. Values are 32-bit floats,
whose steps are 0.004 at column 65,535.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from protocol.shapes import Ellipse, PointMark, Polyline, Rectangle, Shape
from server.export.geometry import Pair, bounds, corners, ellipse_axes

Graphic = tuple[str, npt.NDArray[np.float64]]

# A thinner ellipse is given by its outline: its axes would not be perpendicular in 32 bits.
_THINNEST = 1e-3


def graphic(shape: Shape, width: int, height: int) -> Graphic:
    """Its graphic type and points; what lies outside the picture comes to its edge."""
    if isinstance(shape, PointMark):
        return "POINT", _inside([(shape.x, shape.y)], width, height)
    if isinstance(shape, Ellipse) and _is_whole(shape, width, height):
        ends = [end for axis in ellipse_axes(shape) for end in axis]
        return "ELLIPSE", np.array(ends, float)
    points = corners(shape)
    if not isinstance(shape, Polyline):
        points = [*points, points[0]]
    return "POLYLINE", _inside(points, width, height)


def encloses(shape: Shape) -> bool:
    """Whether it has an inside, which a segmentation can hold."""
    if isinstance(shape, PointMark | Polyline):
        return False
    box = bounds(shape)
    return box.width > 0 and box.height > 0


def mask(shape: Shape, width: int, height: int) -> npt.NDArray[np.bool_]:
    """The pixels whose centres are inside."""
    if isinstance(shape, Rectangle | Ellipse):
        across = (np.arange(width) + 0.5 - shape.x) / shape.width
        down = (np.arange(height) + 0.5 - shape.y) / shape.height
        if isinstance(shape, Rectangle):
            return np.outer((down >= 0) & (down < 1), (across >= 0) & (across < 1))
        inside = (2 * down[:, None] - 1) ** 2 + (2 * across[None, :] - 1) ** 2 <= 1
        return np.asarray(inside)
    return _filled(corners(shape), width, height)


def _filled(points: list[Pair], width: int, height: int) -> npt.NDArray[np.bool_]:
    """Even-odd at pixel centres, row by row: Pillow's polygon would include its outline."""
    inside = np.zeros((height, width), bool)
    xs, ys = (np.array(values, float) for values in zip(*points, strict=True))
    next_xs, next_ys = np.roll(xs, -1), np.roll(ys, -1)
    first = max(0, int(np.floor(ys.min())))
    last = min(height, int(np.ceil(ys.max())) + 1)
    for row in range(first, last):
        middle = row + 0.5
        crosses = (ys <= middle) != (next_ys <= middle)
        part = (middle - ys[crosses]) / (next_ys[crosses] - ys[crosses])
        at = np.sort(xs[crosses] + part * (next_xs[crosses] - xs[crosses]))
        # From the first centre right of one crossing to the last one left of the next.
        edges = np.clip(np.ceil(at - 0.5), 0, width).astype(int)
        for left, right in zip(edges[::2], edges[1::2], strict=False):
            inside[row, left:right] = True
    return inside


def _is_whole(shape: Ellipse, width: int, height: int) -> bool:
    is_thick = min(shape.width, shape.height) > _THINNEST
    is_in = shape.x >= 0 and shape.y >= 0
    return (
        is_thick and is_in and shape.x + shape.width <= width and shape.y + shape.height <= height
    )


def _inside(points: list[Pair], width: int, height: int) -> npt.NDArray[np.float64]:
    most = np.array([width, height], float)
    return np.asarray(np.clip(np.array(points, float), 0.0, most))
