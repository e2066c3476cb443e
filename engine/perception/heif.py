"""Pictures in the container of MP4 (HEIC, AVIF): which of them it is, and whether it is whole."""

from __future__ import annotations

import os
from functools import cache

HEIC = "image/heic"
AVIF = "image/avif"

# Brands of still pictures and of their sequences; films have others.
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}
_AVIF_BRANDS = {b"avif", b"avis"}
# These say only that it is a picture; which one, the compatible brands say.
_ANY_BRANDS = {b"mif1", b"mif2", b"msf1", b"miaf"}
PICTURE_BRANDS = frozenset(_HEIC_BRANDS | _AVIF_BRANDS | _ANY_BRANDS)

# A file begins with a box of at most so many brands; more would be no picture anybody writes.
_MOST_BRANDS = 32
HEAD_BYTES = 16 + 4 * _MOST_BRANDS


def heif_type(head: bytes) -> str | None:
    """Tell by the first `HEAD_BYTES` whether it is such a picture, and which."""
    if head[4:8] != b"ftyp" or head[8:12] not in PICTURE_BRANDS:
        return None
    size = int.from_bytes(head[:4], "big")
    listed = head[16 : min(size, HEAD_BYTES)]
    brands = [head[8:12], *(listed[at : at + 4] for at in range(0, len(listed), 4))]
    for brand in brands:
        if brand in _AVIF_BRANDS | _HEIC_BRANDS:
            return AVIF if brand in _AVIF_BRANDS else HEIC
    return None


def heif_ends(path: str) -> bool:
    """Walk the boxes from head to head: whether the last of them is whole.

    One of length 0 goes on to the end of the file, so of that nobody can tell.
    """
    size = os.path.getsize(path)
    at = 0
    with open(path, "rb") as file:
        while at < size:
            file.seek(at)
            head = file.read(16)
            if len(head) < 8:
                return False
            length = int.from_bytes(head[:4], "big")
            if length == 1:
                length = int.from_bytes(head[8:16], "big")
            elif length == 0:
                return True
            if length < 8:
                # Damaged, which the decoder will say.
                return True
            at += length
    return at == size


@cache
def register() -> None:
    """Let Pillow open HEIC, with libheif in one thread: the worker's memory is limited."""
    import pillow_heif

    pillow_heif.options.DECODE_THREADS = 1
    pillow_heif.options.THUMBNAILS = False
    pillow_heif.register_heif_opener()
