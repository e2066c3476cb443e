import io
import random

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from engine.api import Box, LabRow, TextRow
from engine.perception.straight import tilt_of
from tests.support.labsheet_page import photographed
from tests.support.labsheet_render import overlap, reads_same, render_sheet
from tests.support.looking import look, media, of

WIDTH, HEIGHT, LINE = 1000, 800, 24
COLUMNS = (60, 400, 560, 720)


def boxes(seed=0):
    """Texts in columns that align left, [n, 4, 2], of a straight page."""
    chance = random.Random(seed)
    made = []
    for y in range(60, HEIGHT - 60, 44):
        for x in COLUMNS:
            width = chance.randint(90, 150)
            made.append([[x, y], [x + width, y], [x + width, y + LINE], [x, y + LINE]])
    return np.array(made, np.float64)


def turned(points, degrees):
    angle = np.radians(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    middle = np.array([WIDTH / 2, HEIGHT / 2])
    return (points - middle) @ turn + middle


def seen(points, degrees, keystone, lean):
    corners = np.array([[0, 0], [WIDTH, 0], [WIDTH, HEIGHT], [0, HEIGHT]], np.float64)
    inset, drop = keystone * WIDTH / 2, lean * HEIGHT / 2
    lying = turned(corners + [[inset, 0], [-inset, drop], [0, -drop], [0, 0]], degrees)
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), lying.astype(np.float32))
    return cv2.perspectiveTransform(points.reshape(1, -1, 2), matrix).reshape(points.shape)


def quads(points):
    return [quad.astype(np.float32) for quad in points]


def test_a_straight_page_is_left_alone():
    assert tilt_of(quads(boxes()), WIDTH, HEIGHT) is None
    assert tilt_of(quads(turned(boxes(), 0.3)), WIDTH, HEIGHT) is None


def test_a_few_words_are_no_page():
    assert tilt_of(quads(turned(boxes()[:4], 5)), WIDTH, HEIGHT) is None
    assert tilt_of([], WIDTH, HEIGHT) is None


def test_a_page_that_lies_on_its_side_is_not_tilted():
    assert tilt_of(quads(turned(boxes(), 80)), WIDTH, HEIGHT) is None


@settings(max_examples=60, deadline=None)
@given(
    degrees=st.floats(-5, 5),
    keystone=st.floats(-0.12, 0.12),
    lean=st.floats(-0.12, 0.12),
    seed=st.integers(0, 9),
)
def test_lines_and_columns_come_out_straight(degrees, keystone, lean, seed):
    straight = boxes(seed)
    lying = seen(straight, degrees, keystone, lean)
    tilt = tilt_of(quads(lying), WIDTH, HEIGHT)
    if tilt is None:
        assert abs(lying - straight).max() < 12
        return
    flat = np.array([tilt.flat_quad(quad) for quad in quads(lying)])
    for at in range(0, len(flat), len(COLUMNS)):
        assert np.ptp(flat[at : at + len(COLUMNS), 0, 1]) < LINE / 4, "one line"
    for column in range(len(COLUMNS)):
        assert np.ptp(flat[column :: len(COLUMNS), 0, 0]) < LINE, "one column"


def test_a_slanted_stamp_does_not_tilt_the_page():
    stamp = turned(boxes()[:6], 30)
    assert tilt_of(quads(np.concatenate([boxes(), stamp])), WIDTH, HEIGHT) is None


def test_signs_in_a_street_are_no_page():
    chance = random.Random(3)
    signs = [turned(box, chance.uniform(-11, 11)) for box in boxes()]
    assert tilt_of(quads(signs), WIDTH, HEIGHT) is None


def test_boxes_that_the_detector_gave_whole_pixels_are_enough():
    """Most boxes of a page in perspective came level; the fit began there and never left."""
    lying = np.round(seen(boxes(), 0, 0, 0.1) / 2) * 2
    tilt = tilt_of(quads(lying), WIDTH, HEIGHT)
    assert tilt is not None
    flat = np.array([tilt.flat_quad(quad) for quad in quads(lying)])
    assert np.ptp(flat[-len(COLUMNS) :, 0, 1]) < LINE / 4


@pytest.mark.parametrize("degrees", [-5, 2, 5])
def test_a_box_goes_to_the_straight_page_and_back(degrees):
    lying = turned(boxes(), degrees)
    tilt = tilt_of(quads(lying), WIDTH, HEIGHT)
    assert tilt is not None
    for quad in quads(lying)[5:30]:
        flat = tilt.flat_quad(quad)
        (left, top), (right, bottom) = flat.min(axis=0), flat.max(axis=0)
        back = tilt.in_picture(Box(left, top, right - left, bottom - top), WIDTH, HEIGHT)
        (x0, y0), (x1, y1) = quad.min(axis=0), quad.max(axis=0)
        assert overlap(plain(back), (x0, y0, x1 - x0, y1 - y0)) > 0.9
    whole = tilt.in_picture(Box(-500, -500, 9_000, 9_000), WIDTH, HEIGHT)
    assert whole == Box(0, 0, WIDTH, HEIGHT)


def test_pixels_go_where_their_box_goes():
    page = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    lying = turned(boxes(), 4)
    for quad in lying:
        cv2.fillPoly(page, [np.round(quad).astype(np.int32)], (0, 0, 0))
    tilt = tilt_of(quads(lying), WIDTH, HEIGHT)
    assert tilt is not None
    flat = tilt.flatten(page)
    assert flat.shape == (tilt.height, tilt.width, 3)
    for quad in quads(lying):
        (left, top), (right, bottom) = tilt.flat_quad(quad)[[0, 2]].astype(int).tolist()
        assert flat[top + 3 : bottom - 3, left + 3 : right - 3].max() < 60


# -- drawn sheets through real workers ----------------------------------------------------------


def plain(box):
    return (box.x, box.y, box.width, box.height)


@pytest.mark.parametrize(
    ("seed", "language", "how"),
    [
        (1, "en", {"degrees": 5}),
        (2, "zh", {"degrees": -5}),
        (5, "en", {"keystone": 0.12, "degrees": 2}),
        (2, "zh", {"keystone": 0.1, "lean": -0.1, "degrees": -3}),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_sheet_that_lies_askew_is_read_and_marked_where_it_lies(
    perception, tmp_path, seed, language, how
):
    """At 3° not one of 14 rows was found; lines of the picture were no lines of the sheet."""
    sheet = render_sheet(seed, language)
    with Image.open(io.BytesIO(sheet.png)) as drawn:
        cells = [(cell.text, cell.box) for cell in sheet.cells]
        picture, placed = photographed(drawn.convert("RGB"), cells, **how)
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=85)
    seen_there = await look(perception, media(tmp_path, content.getvalue()))
    found = of(LabRow, seen_there)
    assert [(row.analyte, row.value, row.flag) for row in found] == [
        (row.analyte, row.value, row.flag) for row in sheet.rows
    ]
    for row in found:
        at = [box for text, box in placed if text == row.analyte]
        assert max(overlap(plain(row.cells["analyte"]), box) for box in at) > 0.7
        assert row.box.x + row.box.width <= picture.width
    texts = of(TextRow, seen_there)
    right = [
        any(reads_same(text, one.text) and overlap(plain(one.box), box) > 0.5 for one in texts)
        for text, box in placed
    ]
    assert sum(right) >= 0.93 * len(right)
