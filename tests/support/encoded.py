"""Pictures in forms that Pillow does not write: deep, interlaced, damaged."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

# Where Adam7 begins in each pass and how far it steps: x, y, dx, dy.
_ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
_ADAM7 += [(0, 1, 1, 2)]
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def encoded(picture: Image.Image, form: str, **options: Any) -> bytes:
    """Return the file that Pillow writes."""
    if form == "HEIF":
        from engine.perception.heif import register

        register()
    stream = io.BytesIO()
    picture.save(stream, form, **options)
    return stream.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(samples: np.ndarray, *, interlaced: bool = False) -> bytes:
    """Write uint8 or uint16 of [height, width, 1 to 4] as PNG: gray or RGB, alpha last."""
    height, width, channels = samples.shape
    bits = 8 * samples.dtype.itemsize
    passes = _ADAM7 if interlaced else [(0, 0, 1, 1)]
    rows = b""
    for x, y, dx, dy in passes:
        part = samples[y::dy, x::dx].astype(f">u{bits // 8}")
        rows += b"".join(b"\0" + row.tobytes() for row in part) if part.size else b""
    head = (width, height, bits, _COLOUR_TYPES[channels], 0, 0, interlaced)
    header = struct.pack(">IIBBBBB", *head)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def tiff(samples: np.ndarray, *, order: str = "<") -> bytes:
    """Write uint8 or uint16 of [height, width, 1 or 3] as one uncompressed strip."""
    height, width, channels = samples.shape
    bits = 8 * samples.dtype.itemsize
    strip = samples.astype(f"{order}u{bits // 8}").tobytes()
    entries = 9
    depths_at = 8 + 2 + 12 * entries + 4
    strip_at = depths_at + 2 * channels
    depths = bits if channels == 1 else depths_at
    fields = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, channels, depths), (259, 3, 1, 1)]
    fields += [(262, 3, 1, 1 if channels == 1 else 2), (273, 4, 1, strip_at)]
    fields += [(277, 3, 1, channels), (278, 4, 1, height), (279, 4, 1, len(strip))]
    out = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, entries)
    for tag, kind, count, value in fields:
        is_short = kind == 3 and count == 1
        packed = struct.pack(
            f"{order}HH" if is_short else f"{order}I", *([value, 0][: 1 + is_short])
        )
        out += struct.pack(f"{order}HHI", tag, kind, count) + packed
    out += struct.pack(f"{order}I", 0) + struct.pack(f"{order}{channels}H", *[bits] * channels)
    return out + strip
