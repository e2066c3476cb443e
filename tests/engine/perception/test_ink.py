import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine.perception.ink import Rect, tight_pieces


def drawn(*texts, size=(600, 80), rules=()):
    """Draw (x, text) at y 30; returns pixels and the ink box of each text."""
    picture = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(24)
    boxes = []
    for x, text in texts:
        draw.text((x, 30), text, fill="black", font=font)
        boxes.append(Rect(*(round(edge) for edge in draw.textbbox((x, 30), text, font=font))))
    for line in rules:
        draw.line(line, fill=(90, 90, 90), width=1)
    return np.asarray(picture), boxes


def near(one, other, by=2):
    edges = (one.x0 - other.x0, one.y0 - other.y0, one.x1 - other.x1, one.y1 - other.y1)
    return all(abs(edge) <= by for edge in edges)


def padded(box, by=10):
    return Rect(box.x0 - by, box.y0 - by, box.x1 + by, box.y1 + by)


def test_padding_is_trimmed_to_the_ink():
    pixels, [box] = drawn((50, "Haemoglobin"))
    [piece] = tight_pieces(pixels, padded(box))
    assert near(piece, box)


def test_a_decimal_point_and_an_i_dot_belong_to_the_text():
    pixels, [box] = drawn((50, "i 4.9."))
    [piece] = tight_pieces(pixels, padded(box))
    assert near(piece, box)


def test_two_cells_in_one_box_come_apart():
    pixels, boxes = drawn((50, "5.60"), (160, "mmol/L"))
    both = Rect(boxes[0].x0 - 8, boxes[0].y0 - 8, boxes[1].x1 + 8, boxes[1].y1 + 8)
    pieces = tight_pieces(pixels, both)
    assert len(pieces) == 2 and all(map(near, pieces, boxes))


def test_words_of_one_cell_stay_together():
    pixels, [box] = drawn((50, "White blood cells"))
    assert len(tight_pieces(pixels, padded(box))) == 1


def test_ruled_lines_are_no_ink():
    box = drawn((50, "5.6"))[1][0]
    rules = [(0, box.y1 + 5, 600, box.y1 + 5), (box.x0 - 7, 0, box.x0 - 7, 80)]
    pixels, [box] = drawn((50, "5.6"), rules=rules)
    [piece] = tight_pieces(pixels, padded(box))
    assert near(piece, box)


def test_a_rule_that_climbs_by_a_pixel_is_no_ink_either():
    """On a page turned by 1° the boxes of names held the rules above and below them."""
    box = drawn((50, "Lymphocytes"))[1][0]
    rules = [(0, box.y1 + 4, 600, box.y1 + 14), (0, box.y0 - 14, 600, box.y0 - 4)]
    pixels, [box] = drawn((50, "Lymphocytes"), rules=rules)
    [piece] = tight_pieces(pixels, padded(box))
    assert near(piece, box)


def test_what_blur_and_compression_leave_of_a_rule_is_no_ink():
    """Boxes with the rule above were on another line than those with the rule below."""
    box = drawn((50, "Lymphocytes"))[1][0]
    places = [(x, y) for x in range(0, 600, 11) for y in (box.y0 - 8, box.y1 + 6)]
    dashes = [(x, y + x % 2, x + 6, y + x % 2) for x, y in places]
    pixels, [box] = drawn((50, "Lymphocytes"), rules=dashes)
    [piece] = tight_pieces(pixels, padded(box))
    assert near(piece, box)


def test_a_dash_alone_is_ink():
    pixels, [box] = drawn((50, "-"))
    [piece] = tight_pieces(pixels, padded(box))
    assert piece.height < 8


def test_a_ruled_line_between_two_near_cells_parts_them():
    first, second = drawn((50, "5.6"), (100, "9.5"))[1]
    wall = (first.x1 + second.x0) // 2
    pixels, boxes = drawn((50, "5.6"), (100, "9.5"), rules=[(wall, 0, wall, 80)])
    pieces = tight_pieces(pixels, Rect(first.x0 - 8, first.y0 - 8, second.x1 + 8, second.y1 + 8))
    assert len(pieces) == 2 and all(map(near, pieces, boxes))


def test_light_text_on_dark_is_ink_too():
    pixels, [box] = drawn((50, "Sodium"))
    [piece] = tight_pieces(255 - pixels, padded(box))
    assert near(piece, box)


def test_a_box_without_ink_stays_as_it_is():
    pixels = np.full((50, 50, 3), 200, np.uint8)
    assert tight_pieces(pixels, Rect(10, 10, 40, 30)) == [Rect(10, 10, 40, 30)]
