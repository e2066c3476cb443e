"""Sums about shapes, in the project's pixels: continuous, origin at the first pixel's corner."""

from __future__ import annotations

import math
from typing import assert_never

from protocol.shapes import Ellipse, PointMark, Polygon, Polyline, Rectangle, Shape

Pair = tuple[float, float]

# How far the outline of an ellipse may be from the polygon that stands for it.
_SAG_PX = 0.01
_MOST_CORNERS = 720


def corners(shape: Shape) -> list[Pair]:
    """The points of the outline, the first not repeated; of a point itself."""
    match shape:
        case Rectangle():
            right, bottom = shape.x + shape.width, shape.y + shape.height
            return [(shape.x, shape.y), (right, shape.y), (right, bottom), (shape.x, bottom)]
        case Ellipse():
            return _ellipse_corners(shape)
        case PointMark():
            return [(shape.x, shape.y)]
        case Polyline() | Polygon():
            return [(point.x, point.y) for point in shape.points]
        case _:
            assert_never(shape)


def bounds(shape: Shape) -> Rectangle:
    """The upright rectangle around it."""
    if isinstance(shape, Rectangle | Ellipse):
        return Rectangle(x=shape.x, y=shape.y, width=shape.width, height=shape.height)
    xs, ys = zip(*corners(shape), strict=True)
    left, top = min(xs), min(ys)
    return Rectangle(x=left, y=top, width=max(xs) - left, height=max(ys) - top)


def area(shape: Shape) -> float:
    """Square pixels inside; 0 of what encloses nothing."""
    match shape:
        case Rectangle():
            return shape.width * shape.height
        case Ellipse():
            return math.pi * shape.width * shape.height / 4
        case Polygon():
            points = corners(shape)
            following = [*points[1:], points[0]]
            doubled = sum(
                x * next_y - next_x * y
                for (x, y), (next_x, next_y) in zip(points, following, strict=True)
            )
            return abs(doubled) / 2
        case PointMark() | Polyline():
            return 0.0
        case _:
            assert_never(shape)


def ellipse_axes(shape: Ellipse) -> tuple[tuple[Pair, Pair], tuple[Pair, Pair]]:
    """The ends of the longer axis, then of the shorter one."""
    middle_x, middle_y = shape.x + shape.width / 2, shape.y + shape.height / 2
    across = (shape.x, middle_y), (shape.x + shape.width, middle_y)
    down = (middle_x, shape.y), (middle_x, shape.y + shape.height)
    return (across, down) if shape.width >= shape.height else (down, across)


def _ellipse_corners(shape: Ellipse) -> list[Pair]:
    radius_x, radius_y = shape.width / 2, shape.height / 2
    longer = max(radius_x, radius_y, 1.0)
    # The height of an arc over its chord: r (1 - cos(pi / n)).
    count = math.ceil(math.pi / math.acos(1 - min(_SAG_PX / longer, 0.5)))
    count = min(max(count, 12), _MOST_CORNERS)
    middle_x, middle_y = shape.x + radius_x, shape.y + radius_y
    turns = [2 * math.pi * step / count for step in range(count)]
    return [
        (middle_x + radius_x * math.cos(turn), middle_y + radius_y * math.sin(turn))
        for turn in turns
    ]
