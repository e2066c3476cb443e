"""Places, marks and rows are read strictly in what matters."""

from typing import get_args

import msgspec
import pytest

from protocol import shapes as sh


def decode(text, kind=sh.Shape):
    return msgspec.json.decode(text, type=kind)


def test_a_point_is_a_pair_on_the_wire():
    line = sh.Polyline(points=(sh.Point(0.0, 1.5), sh.Point(-2.0, 3.0)))
    assert msgspec.json.encode(line) == b'{"type":"polyline","points":[[0.0,1.5],[-2.0,3.0]]}'
    assert decode(msgspec.json.encode(line)) == line


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"polyline","points":[[0,0]]}',
        '{"type":"polygon","points":[[0,0],[1,1]]}',
        '{"type":"polyline","points":[[0],[1,1]]}',
        '{"type":"rectangle","x":0,"y":0,"width":-1,"height":1}',
        '{"type":"point","x":1000001,"y":0}',
        '{"type":"point","x":"0","y":0}',
        '{"type":"star","x":0,"y":0}',
        '{"x":0,"y":0}',
    ],
)
def test_a_shape_that_is_none_is_refused(text):
    with pytest.raises(msgspec.ValidationError):
        decode(text)


def test_a_stroke_has_at_most_5000_points():
    longest = sh.Polyline(points=tuple(sh.Point(float(n), 0.0) for n in range(5_000)))
    assert decode(msgspec.json.encode(longest)) == longest
    longer = msgspec.json.encode({"type": "polyline", "points": [[n, 0] for n in range(5_001)]})
    with pytest.raises(msgspec.ValidationError):
        decode(longer)


@pytest.mark.parametrize("name", ["a", "p-1", "A_b.c:d-9", "x" * 64])
def test_an_id_is_safe_in_a_url_and_a_file_name(name):
    assert decode(msgspec.json.encode(name), sh.Id) == name


@pytest.mark.parametrize("name", ["", "x" * 65, "a/b", "a b", "ä", "a\n", "a%2f", ".", "..", ".x"])
def test_any_other_id_is_refused(name):
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.json.encode(name), sh.Id)


def test_every_shape_and_row_names_its_type():
    for union in (sh.Shape, sh.ObservedRow):
        tags = [member.__struct_config__.tag for member in get_args(union)]
        assert None not in tags and len(set(tags)) == len(tags)
