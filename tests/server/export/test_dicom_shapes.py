"""Shapes as graphic data and as masks."""

import numpy as np
import pytest

from protocol.shapes import Ellipse, Point, PointMark, Polygon, Rectangle
from server.export.dicom_shapes import encloses, graphic, mask
from server.export.geometry import area
from tests.support.cases import SHAPES


def test_a_whole_ellipse_is_one_and_another_is_its_outline():
    whole = Ellipse(x=0, y=0, width=80, height=120)
    assert graphic(whole, 80, 120)[0] == "ELLIPSE"
    over = Ellipse(x=-1, y=0, width=80, height=120)
    kind, points = graphic(over, 80, 120)
    assert kind == "POLYLINE" and points.min() == 0
    assert graphic(Ellipse(x=1, y=1, width=0, height=5), 80, 120)[0] == "POLYLINE"


def test_a_closed_line_ends_where_it_begins():
    kind, points = graphic(SHAPES["polygon"], 80, 120)
    assert kind == "POLYLINE" and np.array_equal(points[0], points[-1]) and len(points) == 4


@pytest.mark.parametrize("name", ["rectangle", "ellipse", "polygon"])
def test_a_mask_has_about_the_shape_s_area(name):
    shape = SHAPES[name]
    assert mask(shape, 80, 120).sum() == pytest.approx(area(shape), rel=0.1)


def test_a_mask_is_the_pixels_whose_centres_are_inside():
    box = Rectangle(x=2.4, y=1.4, width=3, height=2)
    wanted = np.zeros((6, 8), bool)
    wanted[1:3, 2:5] = True
    assert np.array_equal(mask(box, 8, 6), wanted)
    points = (Point(2.4, 1.4), Point(5.4, 1.4), Point(5.4, 3.4), Point(2.4, 3.4))
    assert np.array_equal(mask(Polygon(points=points), 8, 6), wanted)


def test_a_mask_outside_the_picture_is_empty():
    assert not mask(Rectangle(x=90, y=-50, width=10, height=10), 80, 120).any()
    away = Polygon(points=(Point(-9, -9), Point(-2, -9), Point(-2, -2)))
    assert not mask(away, 80, 120).any()


def test_lines_points_and_flat_boxes_enclose_nothing():
    assert not encloses(PointMark(x=1, y=1)) and not encloses(SHAPES["polyline"])
    assert not encloses(Rectangle(x=1, y=1, width=0, height=9))
    assert encloses(SHAPES["polygon"])
