"""What the bytes really are, and whether it is safe to decode them."""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from magika import Magika
from PIL import ExifTags, Image

from engine.api import EngineCode, EngineError
from engine.perception.heif import AVIF, HEAD_BYTES, HEIC, heif_ends, heif_type, register

# The check is ours and comes before any decoding; Pillow's own is a warning first, an error later.
Image.MAX_IMAGE_PIXELS = None

_PILLOW_FORMAT = {
    "image/jpeg": "JPEG",
    "image/png": "PNG",
    "image/webp": "WEBP",
    "image/gif": "GIF",
    "image/bmp": "BMP",
    "image/tiff": "TIFF",
    AVIF: "AVIF",
    HEIC: "HEIF",
}
# Their decoders turn them while loading, and report them turned.
TURNED_BY_DECODER = frozenset({"image/tiff", HEIC})

DICOM = "application/dicom"

# Flat pictures below this are harmless however small their files are.
_MANY_BYTES = 64 * 1024 * 1024

# What senders write for the same thing.
_SAME_TYPE = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-ms-bmp": "image/bmp"}
_SAME_TYPE |= {"image/apng": "image/png", "image/x-png": "image/png", "image/tif": "image/tiff"}
_SAME_TYPE |= {"image/heif": HEIC, "image/heic-sequence": HEIC, "image/avif-sequence": AVIF}

# Sizes that the second header of a BMP may have; "BM" alone also begins English sentences.
_BMP_HEADERS = {12, 40, 52, 56, 64, 108, 124}

# Group 0002 or 0008 with an element that comes early in it, then its type if that is stated.
_BARE_DICOM = re.compile(
    rb"(?:[\x02\x08]\x00[\x00-\x20]\x00|\x00[\x02\x08]\x00[\x00-\x20])"
    rb"(?P<vr>AE|CS|DA|OB|SH|TM|UI|UL)?",
    re.DOTALL,
)

# What Pillow's parsers of headers and metadata raise on bytes that mean nothing.
DAMAGE: tuple[type[Exception], ...] = (
    *(OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(EOFError, OverflowError, ZeroDivisionError, struct.error, AssertionError, RuntimeError),
)


@dataclass(frozen=True)
class Kind:
    """What a file is: dimensions in pixels after orientation (EXIF, 1 to 8) was applied."""

    media_type: str
    width: int
    height: int
    orientation: int


def identify(path: str, *, max_bytes: int, max_pixels: int, max_ratio: int = 2_000) -> Kind:
    """Tell what the file is without decoding its pixels.

    `max_ratio` is how many bytes of pixels one byte of the file may become, where they are many.

    Raises `EngineError`: `media_empty`, `media_too_big`, `media_unsupported`, `media_truncated`,
    `media_corrupt`, `media_too_many_pixels`, `media_too_dense`.
    """
    check_size(path, max_bytes)
    media_type = _type_by_magic(path)
    if media_type is None:
        raise EngineError(
            EngineCode.MEDIA_UNSUPPORTED,
            f"This is {_name_of(path)}, not a picture that can be shown.",
        )
    # A cut picture must not show as a whole one with a grey part. Of a GIF only the first frame is
    # wanted, which the decoder finds complete or not.
    if media_type != "image/gif" and is_cut_short(path, media_type):
        raise cut_short(media_type)
    try:
        with open_picture(path, media_type) as picture:
            width, height = picture.size
            if width * height > max_pixels:
                raise EngineError(
                    EngineCode.MEDIA_TOO_MANY_PIXELS,
                    f"The picture has {width:,} x {height:,} pixels; "
                    f"at most {max_pixels:,} in all are decoded.",
                )
            _check_ratio(path, picture, max_ratio)
            orientation = _orientation(path, picture, media_type)
    except DAMAGE as damage:
        raise EngineError(
            EngineCode.MEDIA_CORRUPT, f"The header of this {media_type} file is damaged."
        ) from damage
    if orientation >= 5 and media_type not in TURNED_BY_DECODER:
        width, height = height, width
    return Kind(media_type, width, height, orientation)


def check_size(path: str, max_bytes: int) -> None:
    """Raise `EngineError`: `media_empty` or `media_too_big`."""
    size = os.path.getsize(path)
    if size == 0:
        raise EngineError(EngineCode.MEDIA_EMPTY, "The file is empty.")
    if size > max_bytes:
        raise EngineError(
            EngineCode.MEDIA_TOO_BIG,
            f"The file has {size:,} bytes; at most {max_bytes:,} are looked at.",
        )


def _check_ratio(path: str, picture: Image.Image, max_ratio: int) -> None:
    """Raise `EngineError` `media_too_dense` for a few bytes that would fill the memory."""
    sample_bytes = 4 if picture.mode in ("I", "F") else 2 if ";16" in picture.mode else 1
    decoded = picture.width * picture.height * len(picture.getbands()) * sample_bytes
    size = os.path.getsize(path)
    if decoded >= _MANY_BYTES and decoded > max_ratio * size:
        raise EngineError(
            EngineCode.MEDIA_TOO_DENSE,
            f"{size:,} bytes would become {decoded:,} of pixels; "
            f"at most {max_ratio:,} times as many are decoded.",
        )


def is_dicom(path: str) -> bool:
    """Whether it is DICOM: by its magic, or by its first element where the preamble is left out."""
    with open(path, "rb") as file:
        head = file.read(132)
    if head[128:] == b"DICM":
        return True
    first = _BARE_DICOM.match(head)
    if first is None:
        return False
    # Without a type, four bytes of length follow; the first elements are all short.
    return first["vr"] is not None or 0 < int.from_bytes(head[4:8], "little") <= 64


def open_picture(path: str, media_type: str) -> Image.Image:
    """Open lazily and only with the decoder of `media_type`."""
    if media_type == HEIC:
        register()
    return Image.open(path, formats=[_PILLOW_FORMAT[media_type]])


def is_declared_wrongly(declared: str | None, media_type: str) -> bool:
    """Whether the sender named another type than the bytes have; parameters are ignored.

    "application/octet-stream" is what browsers say when they do not know, not a claim.
    """
    plain = (declared or "").partition(";")[0].strip().lower()
    if plain in ("", "application/octet-stream"):
        return False
    return _SAME_TYPE.get(plain, plain) != media_type


def cut_short(media_type: str) -> EngineError:
    """Return the error for a file whose end is missing."""
    return EngineError(EngineCode.MEDIA_TRUNCATED, f"The end of this {media_type} file is missing.")


def _type_by_magic(path: str) -> str | None:
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    # The second pair is BigTIFF, of files that may pass 4 GB.
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "image/tiff"
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return "image/bmp"
    return heif_type(head)


@lru_cache(maxsize=1)
def _magika() -> Magika:
    return Magika()


def _name_of(path: str) -> str:
    """Name the content for a person: "a Zip archive data (application/zip)"."""
    found = _magika().identify_path(path).output
    if found.label in ("unknown", "undefined"):
        return "a file of unknown type"
    article = "an" if found.description[:1].lower() in "aeiou" else "a"
    return f"{article} {found.description} file ({found.mime_type})"


def _orientation(path: str, picture: Image.Image, media_type: str) -> int:
    """Return the EXIF orientation; 1 when there is none or it means nothing."""
    try:
        if media_type == "image/png":
            # `getexif` of a PNG whose metadata comes last would decode all pixels first.
            exif = Image.Exif()
            exif.load(_scan_png(path).exif)
        else:
            exif = picture.getexif()
        value = exif.get(ExifTags.Base.Orientation, 1)
    except DAMAGE:
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


# -- is the end there? ---------------------------------------------------------------------------


def is_cut_short(path: str, media_type: str) -> bool:
    """Whether the file ends before its own structure says it does."""
    check = _ENDS.get(media_type)
    return check is not None and not check(path)


@dataclass(frozen=True)
class _PngScan:
    ended: bool
    exif: bytes


def _scan_png(path: str) -> _PngScan:
    """Walk the chunks from header to header; pixels are skipped, not read."""
    exif = b""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        file.seek(8)
        while len(head := file.read(8)) == 8:
            length, kind = struct.unpack(">I4s", head)
            if file.tell() + length + 4 > size:
                break
            if kind == b"IEND":
                return _PngScan(True, exif)
            if kind == b"eXIf" and length <= 1024 * 1024:
                exif = b"Exif\0\0" + file.read(length)
                file.seek(4, os.SEEK_CUR)
            else:
                file.seek(length + 4, os.SEEK_CUR)
    return _PngScan(False, exif)


def _png_ends(path: str) -> bool:
    return _scan_png(path).ended


def _jpeg_ends(path: str) -> bool:
    """Find the end marker behind the first scan: one in an embedded thumbnail does not count."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as bytes_:
        at = 2
        while at + 4 <= len(bytes_):
            if bytes_[at] != 0xFF:
                # No marker where one must be: damaged, which the decoder will say.
                return True
            marker = bytes_[at + 1]
            if marker == 0xFF:
                at += 1
                continue
            if marker == 0xD9:
                return True
            at += 2 + int.from_bytes(bytes_[at + 2 : at + 4], "big")
            if marker == 0xDA:
                return bytes_.find(b"\xff\xd9", at) >= 0
    return False


def _webp_ends(path: str) -> bool:
    with open(path, "rb") as file:
        head = file.read(8)
    return os.path.getsize(path) >= int.from_bytes(head[4:8], "little") + 8


def _gif_ends(path: str) -> bool:
    """Look for the trailer; some writers pad behind it with zeros."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 1024))
        return file.read().rstrip(b"\0").endswith(b"\x3b")


_ENDS: dict[str, Callable[[str], bool]] = {
    "image/png": _png_ends,
    "image/jpeg": _jpeg_ends,
    "image/webp": _webp_ends,
    "image/gif": _gif_ends,
    AVIF: heif_ends,
    HEIC: heif_ends,
}
