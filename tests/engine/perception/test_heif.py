import struct

import pytest

from engine.perception.heif import heif_ends, heif_type
from engine.perception.sound import is_container, sound_type


def head(*brands, size=None):
    body = b"ftyp" + brands[0] + bytes(4) + b"".join(brands[1:])
    return struct.pack(">I", size or len(body) + 4) + body


@pytest.mark.parametrize(
    ("brands", "media_type"),
    [
        ((b"heic", b"mif1"), "image/heic"),
        ((b"heix",), "image/heic"),
        ((b"heis",), "image/heic"),
        ((b"avif", b"mif1"), "image/avif"),
        ((b"mif1", b"mif1", b"avif"), "image/avif"),
        ((b"mif1", b"miaf", b"heic"), "image/heic"),
        ((b"mif1",), None),
        ((b"isom", b"heic"), None),
        ((b"qt  ",), None),
    ],
)
def test_the_brands_say_which_picture_it_is(brands, media_type):
    assert heif_type(head(*brands)) == media_type


def test_a_list_of_brands_without_end_is_not_followed():
    assert heif_type(head(b"mif1", *[b"none"] * 500, b"heic")[:200]) is None
    assert heif_type(b"") is None


@pytest.mark.parametrize("brand", [b"heic", b"heim", b"heis", b"hevx", b"avif", b"mif2"])
def test_a_picture_is_neither_film_nor_recording(brand):
    """A HEIC of the brand "heis" went to the decoder of films, which found no film in it."""
    assert not is_container(head(brand) + bytes(16))
    assert sound_type(head(brand) + bytes(16)) is None


@pytest.mark.parametrize(
    ("boxes", "is_whole"),
    [
        (head(b"heic"), True),
        (head(b"heic") + struct.pack(">I4s", 12, b"mdat") + bytes(4), True),
        (head(b"heic") + struct.pack(">I4s", 12, b"mdat") + bytes(3), False),
        (head(b"heic") + struct.pack(">I4sQ", 1, b"mdat", 20) + bytes(4), True),
        (head(b"heic") + struct.pack(">I4sQ", 1, b"mdat", 21) + bytes(4), False),
        (head(b"heic") + struct.pack(">I4s", 0, b"mdat") + bytes(99), True),
        (head(b"heic") + struct.pack(">I4s", 3, b"mdat"), True),
        (head(b"heic") + b"\0\0", False),
    ],
)
def test_a_box_beyond_the_end_is_missed(tmp_path, boxes, is_whole):
    path = tmp_path / "upload"
    path.write_bytes(boxes)
    assert heif_ends(str(path)) is is_whole
