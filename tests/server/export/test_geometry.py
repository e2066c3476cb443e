"""Outlines, boxes and areas."""

import math

import pytest

from protocol.shapes import Ellipse, Point, Polygon, Rectangle
from server.export.geometry import area, bounds, corners, ellipse_axes
from tests.support.cases import SHAPES


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_box_is_that_of_the_outline(name):
    shape = SHAPES[name]
    xs, ys = zip(*corners(shape), strict=True)
    box = bounds(shape)
    assert box.x == pytest.approx(min(xs), abs=0.01)
    assert box.y == pytest.approx(min(ys), abs=0.01)
    assert box.x + box.width == pytest.approx(max(xs), abs=0.01)
    assert box.y + box.height == pytest.approx(max(ys), abs=0.01)


def test_areas():
    assert area(Rectangle(x=1, y=1, width=3, height=4)) == 12
    assert area(Ellipse(x=0, y=0, width=2, height=4)) == pytest.approx(2 * math.pi)
    triangle = Polygon(points=(Point(0, 0), Point(0, 4), Point(3, 0)))
    assert area(triangle) == 6
    assert area(SHAPES["point"]) == area(SHAPES["polyline"]) == 0


@pytest.mark.parametrize("size", [(1, 1), (21.9, 50.3), (900, 300), (8000, 8000)])
def test_a_polygon_stands_for_an_ellipse_to_a_hundredth_of_a_pixel(size):
    width, height = size
    points = corners(Ellipse(x=0, y=0, width=width, height=height))
    worst = 0.0
    for (x, y), (next_x, next_y) in zip(points, [*points[1:], points[0]], strict=True):
        middle_x, middle_y = (x + next_x) / 2 - width / 2, (y + next_y) / 2 - height / 2
        scale = math.hypot(middle_x / (width / 2), middle_y / (height / 2))
        worst = max(worst, math.hypot(middle_x, middle_y) * (1 / scale - 1))
    assert worst <= (0.01 if max(size) < 2_000 else 0.05)
    assert len(points) <= 720


def test_the_longer_axis_comes_first():
    (a, b), (c, d) = ellipse_axes(Ellipse(x=0, y=10, width=4, height=8))
    assert (a, b) == ((2, 10), (2, 18)) and (c, d) == ((0, 14), (4, 14))
