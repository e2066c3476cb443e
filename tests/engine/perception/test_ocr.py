import socket

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from engine.perception.ocr import DETECTOR_FILE, RECOGNISER_FILE, TextReader, model_dir
from tests.support.labsheet_render import overlap, reads_same


@pytest.fixture(scope="module")
def reader():
    return TextReader(threads=2, side_px=960, batch=4, min_score=0.5)


def page(size, *lines, font_px=28):
    """Draw (x, y, text); returns pixels and the ink box of each text as x, y, width, height."""
    picture = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(font_px)
    boxes = []
    for x, y, text in lines:
        draw.text((x, y), text, fill="black", font=font)
        left, top, right, bottom = draw.textbbox((x, y), text, font=font)
        boxes.append((left, top, right - left, bottom - top))
    return np.asarray(picture), boxes


def read_all(reader, pixels):
    return [piece for _, read in reader.read(reader.page(pixels).pieces) for piece in read]


def test_the_weights_lie_inside_the_package():
    assert (model_dir() / DETECTOR_FILE).stat().st_size > 1_000_000
    assert (model_dir() / RECOGNISER_FILE).stat().st_size > 1_000_000


def test_loading_asks_no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("the reader opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    TextReader(threads=1, side_px=640, batch=1, min_score=0.5)


def test_text_is_read_in_order_with_tight_boxes(reader):
    lines = [(40, 40, "Potassium"), (400, 42, "5.6 mmol/L"), (40, 140, "Sodium"), (400, 139, "141")]
    pixels, boxes = page((700, 220), *lines)
    found = read_all(reader, pixels)
    assert [piece.text for piece in found] == [text for _, _, text in lines]
    for piece, box in zip(found, boxes, strict=True):
        ink = (piece.box.x0, piece.box.y0, piece.box.width, piece.box.height)
        assert overlap(ink, box) > 0.7


def test_boxes_of_a_big_picture_are_in_its_own_pixels(reader):
    pixels, [box] = page((3200, 2400), (1900, 1500, "Creatinine 171"), font_px=80)
    [piece] = read_all(reader, pixels)
    assert reads_same("Creatinine 171", piece.text)
    assert overlap((piece.box.x0, piece.box.y0, piece.box.width, piece.box.height), box) > 0.8


def test_text_comes_in_batches_as_it_is_read(reader):
    pixels, _ = page((500, 700), *[(40, 20 + 60 * row, f"Row {row}") for row in range(11)])
    pieces = reader.page(pixels).pieces
    batches = list(reader.read(pieces))
    assert [done for done, _ in batches] == [4, 11]
    texts = [piece.text for _, read in batches for piece in read]
    assert texts == [f"Row {row}" for row in range(11)]


def test_fine_print_on_a_big_page_gets_a_second_look(reader):
    lines = [(60 + 1500 * (row % 2), 40 + 36 * row, f"Line {row}") for row in range(60)]
    pixels, _ = page((3000, 2300), *lines, font_px=24)
    found = [piece.text for piece in read_all(reader, pixels)]
    assert sum(text in found for _, _, text in lines) >= 57


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (8, 4000), (4000, 8), (32, 32), (640, 480)])
def test_a_picture_without_text_has_none(reader, size):
    pixels = np.full((size[1], size[0], 3), 180, np.uint8)
    assert reader.page(pixels).pieces == []


def test_noise_is_not_text(reader):
    noise = np.random.default_rng(0).integers(0, 255, (300, 400, 3), np.uint8)
    assert read_all(reader, noise) == []


def test_a_slanted_line_is_read(reader):
    pixels, _ = page((800, 400), (60, 180, "Alkaline phosphatase"), font_px=36)
    turned = np.asarray(Image.fromarray(pixels).rotate(6, fillcolor="white"))
    [piece] = read_all(reader, turned)
    assert reads_same("Alkaline phosphatase", piece.text)


def test_a_long_screenshot_is_read_like_a_page(reader):
    """Scaled by its longer side alone its letters were 3 px high, and nothing was found."""
    lines = [(40, 20 + 200 * n, f"Glucose {n} mmol/L") for n in range(38)]
    pixels, _ = page((1000, 7700), *lines, font_px=24)
    read = [piece.text for piece in read_all(reader, pixels)]
    assert sum(text.startswith("Glucose") for text in read) == len(lines)
