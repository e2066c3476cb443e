"""Pictures small enough for a page, as JPEG or PNG; a gray frame is shaded first.

The sums are those of PS3.3 C.11.2 as the decoder and the page do them, held to the same vectors;
the server may not load the engine's code for them.
"""

from __future__ import annotations

import io
import struct
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

SIDE_PX = 1600
MAX_PIXELS = 200_000_000
_LENGTH = struct.Struct("<I")
_QUALITY = 85
# Below this a PNG of letters and lines is small, and sharper than a JPEG.
_PNG_BYTES = 300_000
_WHITE = 255


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """See `docs/protocol.md`, medical images."""

    center: float
    width: float


class Lut(msgspec.Struct, frozen=True, kw_only=True):
    """See `docs/protocol.md`, medical images."""

    first: int
    bits: int
    entries: tuple[int, ...]


class FrameHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What stands before the samples of a gray frame."""

    width: int
    height: int
    sample: str
    slope: float = 1.0
    intercept: float = 0.0
    function: str = "LINEAR"
    invert: bool = False
    windows: tuple[Window, ...] = ()
    lut: Lut | None = None


def small(content: bytes) -> tuple[bytes, str] | None:
    """The picture at `SIDE_PX` at most and its type; None when it is no picture."""
    try:
        picture, form = _opened(content)
    except (OSError, ValueError, msgspec.DecodeError, Image.DecompressionBombError):
        return None
    if form in ("PNG", "JPEG") and max(picture.size) <= SIDE_PX:
        return content, f"image/{form.lower()}"
    picture.thumbnail((SIDE_PX, SIDE_PX))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    if stream.tell() <= _PNG_BYTES:
        return stream.getvalue(), "image/png"
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=_QUALITY)
    return stream.getvalue(), "image/jpeg"


def shade(samples: npt.NDArray[Any], header: FrameHeader) -> npt.NDArray[np.uint8]:
    """Gray as it is seen by default: black is 0, white is 255."""
    values = samples * header.slope + header.intercept
    if header.lut is not None:
        entries = np.asarray(header.lut.entries, float) / ((1 << header.lut.bits) - 1)
        places = np.clip(np.floor(values - header.lut.first), 0, len(entries) - 1)
        parts = entries[places.astype(np.int64)]
    else:
        parts = _by_window(values, header.windows[0], header.function)
    shades = np.floor(parts * _WHITE + 0.5).astype(np.uint8)
    return _WHITE - shades if header.invert else shades


def _opened(content: bytes) -> tuple[Image.Image, str]:
    """The picture in RGB, and what the bytes are ("" for a gray frame)."""
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    try:
        picture = Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "WEBP"))
    except UnidentifiedImageError:
        return Image.fromarray(_gray(content)).convert("RGB"), ""
    with picture:
        return picture.convert("RGB"), str(picture.format)


def _gray(content: bytes) -> npt.NDArray[np.uint8]:
    if len(content) < _LENGTH.size:
        raise ValueError("no frame")
    (length,) = _LENGTH.unpack_from(content)
    start = _LENGTH.size + length
    header = msgspec.json.decode(content[_LENGTH.size : start], type=FrameHeader)
    kind = {"uint8": "<u1", "int8": "<i1", "uint16": "<u2", "int16": "<i2"}.get(header.sample)
    if kind is None or not (header.windows or header.lut):
        raise ValueError("no frame that is known here")
    count = header.width * header.height
    samples = np.frombuffer(content, kind, count, start).reshape(header.height, header.width)
    return shade(samples, header)


def _by_window(values: npt.NDArray[Any], window: Window, function: str) -> npt.NDArray[Any]:
    center, width = window.center, window.width
    if function == "SIGMOID":
        exponent = np.clip(-4 * (values - center) / width, -700, 700)
        return np.asarray(1 / (1 + np.exp(exponent)))
    if function == "LINEAR":
        center, width = center - 0.5, width - 1
    if width == 0:
        return np.where(values <= center, 0.0, 1.0)
    return np.asarray(np.clip((values - center) / width + 0.5, 0.0, 1.0))
