"""Every form a picture may come in: its pixels are right, or it is refused with a code."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from engine.api import EngineCode, EngineError
from engine.perception.detect import identify
from engine.perception.picture import Source
from tests.support.encoded import encoded, png, tiff

WIDTH, HEIGHT = 97, 61  # no multiple of anything


def drawn(size=(WIDTH, HEIGHT)):
    """Soft colours with an edge, different in every direction."""
    x, y = np.meshgrid(np.linspace(0, 1, size[0]), np.linspace(0, 1, size[1]))
    pixels = np.stack([40 + 180 * x, 220 - 160 * y, 60 + 120 * x * y], axis=-1).astype(np.uint8)
    pixels[: size[1] // 3, : size[0] // 4] = (230, 40, 40)
    return Image.fromarray(pixels)


RGB = drawn()
GRAY = RGB.convert("L")
BLACK = Image.new("RGB", RGB.size)
DEEP = np.asarray(RGB).astype(np.uint16) * 257
DEEP_GRAY = np.asarray(GRAY).astype(np.uint16)[:, :, None] * 257
OPAQUE = np.full((HEIGHT, WIDTH, 1), 65535, np.uint16)


def source(folder, content, **limits):
    path = folder / "upload"
    path.write_bytes(content)
    kind = identify(str(path), **({"max_bytes": 10**9, "max_pixels": 10**8} | limits))
    return Source(str(path), kind)


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def palette():
    return RGB.quantize(64)


def clear(mode="RGBA"):
    """Transparent on its right half, where its colour is red."""
    rgba = RGB.convert("RGBA")
    rgba.paste((255, 0, 0, 0), (WIDTH // 2, 0, WIDTH, HEIGHT))
    return rgba.convert(mode)


def over_white():
    shown = RGB.copy()
    shown.paste("white", (WIDTH // 2, 0, WIDTH, HEIGHT))
    return shown


# Name, how it is made, its type, what it shows, and how far a pixel may be off in the mean.
TABLE = [
    ("jpeg", lambda: encoded(RGB, "JPEG", quality=95), "jpeg", RGB, 2),
    (
        "jpeg progressive",
        lambda: encoded(RGB, "JPEG", quality=95, progressive=True),
        "jpeg",
        RGB,
        2,
    ),
    ("jpeg 4:4:4", lambda: encoded(RGB, "JPEG", quality=95, subsampling=0), "jpeg", RGB, 2),
    ("jpeg gray", lambda: encoded(GRAY, "JPEG", quality=95), "jpeg", GRAY, 2),
    ("jpeg cmyk", lambda: encoded(RGB.convert("CMYK"), "JPEG", quality=95), "jpeg", RGB, 2),
    ("jpeg restarts", lambda: encoded(RGB, "JPEG", restart_marker_rows=1), "jpeg", RGB, 4),
    ("png", lambda: encoded(RGB, "PNG"), "png", RGB, 0),
    ("png 1 bit", lambda: encoded(RGB.convert("1"), "PNG"), "png", RGB.convert("1"), 0),
    ("png palette", lambda: encoded(palette(), "PNG"), "png", palette(), 0),
    ("png palette 2 bit", lambda: encoded(RGB.quantize(4), "PNG"), "png", RGB.quantize(4), 0),
    ("png gray", lambda: encoded(GRAY, "PNG"), "png", GRAY, 0),
    ("png alpha", lambda: encoded(clear(), "PNG"), "png", over_white(), 0),
    ("png gray alpha", lambda: encoded(GRAY.convert("LA"), "PNG"), "png", GRAY, 0),
    ("png 16", lambda: png(DEEP), "png", RGB, 0.01),
    ("png 16 gray", lambda: png(DEEP_GRAY), "png", GRAY, 0.01),
    ("png 16 alpha", lambda: png(np.dstack([DEEP, OPAQUE])), "png", RGB, 0.01),
    ("png 16 gray alpha", lambda: png(np.dstack([DEEP_GRAY, OPAQUE])), "png", GRAY, 0.01),
    ("png interlaced", lambda: png(np.asarray(RGB), interlaced=True), "png", RGB, 0),
    ("png 16 interlaced", lambda: png(DEEP, interlaced=True), "png", RGB, 0.01),
    ("apng", lambda: encoded(RGB, "PNG", save_all=True, append_images=[BLACK]), "png", RGB, 0),
    ("gif", lambda: encoded(palette(), "GIF"), "gif", palette(), 0),
    (
        "gif moving",
        lambda: encoded(palette(), "GIF", save_all=True, append_images=[BLACK]),
        *("gif", palette(), 0),
    ),
    ("webp", lambda: encoded(RGB, "WEBP", quality=95), "webp", RGB, 3),
    ("webp lossless", lambda: encoded(RGB, "WEBP", lossless=True), "webp", RGB, 0),
    ("webp alpha", lambda: encoded(clear(), "WEBP", lossless=True), "webp", over_white(), 0),
    (
        "webp moving",
        lambda: encoded(RGB, "WEBP", lossless=True, save_all=True, append_images=[BLACK]),
        *("webp", RGB, 0),
    ),
    ("tiff", lambda: encoded(RGB, "TIFF"), "tiff", RGB, 0),
    ("tiff lzw", lambda: encoded(RGB, "TIFF", compression="tiff_lzw"), "tiff", RGB, 0),
    ("tiff deflate", lambda: encoded(RGB, "TIFF", compression="tiff_deflate"), "tiff", RGB, 0),
    ("tiff packbits", lambda: encoded(RGB, "TIFF", compression="packbits"), "tiff", RGB, 0),
    ("tiff jpeg", lambda: encoded(RGB, "TIFF", compression="jpeg"), "tiff", RGB, 4),
    (
        "tiff fax",
        lambda: encoded(RGB.convert("1"), "TIFF", compression="group4"),
        *("tiff", RGB.convert("1"), 0),
    ),
    ("tiff cmyk", lambda: encoded(RGB.convert("CMYK"), "TIFF"), "tiff", RGB, 1),
    (
        "tiff pages",
        lambda: encoded(RGB, "TIFF", save_all=True, append_images=[BLACK]),
        *("tiff", RGB, 0),
    ),
    ("tiff big", lambda: encoded(RGB, "TIFF", big_tiff=True), "tiff", RGB, 0),
    ("tiff 16", lambda: tiff(DEEP), "tiff", RGB, 0.01),
    ("tiff 16 big-endian", lambda: tiff(DEEP, order=">"), "tiff", RGB, 0.01),
    ("tiff 16 gray", lambda: tiff(DEEP_GRAY), "tiff", GRAY, 0.01),
    ("tiff 16 gray big-endian", lambda: tiff(DEEP_GRAY, order=">"), "tiff", GRAY, 0.01),
    ("avif", lambda: encoded(RGB, "AVIF", quality=95), "avif", RGB, 4),
    ("avif alpha", lambda: encoded(clear(), "AVIF", quality=100), "avif", over_white(), 4),
    ("heic", lambda: encoded(RGB, "HEIF", quality=95), "heic", RGB, 4),
    ("heic alpha", lambda: encoded(clear(), "HEIF", quality=100), "heic", over_white(), 4),
    ("heic gray", lambda: encoded(GRAY, "HEIF", quality=95), "heic", GRAY, 4),
    ("bmp", lambda: encoded(RGB, "BMP"), "bmp", RGB, 0),
    ("bmp palette", lambda: encoded(palette(), "BMP"), "bmp", palette(), 0),
    ("bmp 1 bit", lambda: encoded(RGB.convert("1"), "BMP"), "bmp", RGB.convert("1"), 0),
]


@pytest.mark.parametrize(
    ("make", "media_type", "shown", "off"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_a_picture_shows_what_was_drawn(tmp_path, make, media_type, shown, off):
    picture = source(tmp_path, make())
    assert picture.kind.media_type == f"image/{media_type}"
    assert (picture.kind.width, picture.kind.height) == (WIDTH, HEIGHT)
    pixels = picture.pixels()
    assert pixels.mode == "RGB" and pixels.size == (WIDTH, HEIGHT)
    difference = np.asarray(pixels).astype(int) - np.asarray(shown.convert("RGB")).astype(int)
    assert np.abs(difference).mean() <= off


# -- orientation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["AVIF", "HEIF"])
def test_a_phone_s_picture_is_turned_exactly_once(tmp_path, form, orientation):
    """W74: HEIC and AVIF keep their turn in the container, and often a second one in EXIF."""
    content = encoded(RGB, form, quality=95, exif=turned(orientation).tobytes())
    upright = np.asarray(oriented(RGB, orientation))
    picture = source(tmp_path, content)
    pixels = np.asarray(picture.pixels()).astype(int)
    assert pixels.shape == upright.shape
    assert (picture.kind.width, picture.kind.height) == (pixels.shape[1], pixels.shape[0])
    assert np.abs(pixels - upright).mean() < 4


def oriented(picture, orientation):
    """What Pillow's own function makes of a PNG with this orientation."""
    from PIL import ImageOps

    with Image.open(io.BytesIO(encoded(picture, "PNG", exif=turned(orientation)))) as stored:
        return ImageOps.exif_transpose(stored)


# Pillow says that it skips a tag, too.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "exif",
    [
        b"",
        b"Exif\0\0",
        b"Exif\0\0garbage",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
        # The next directory is this one again.
        b"Exif\0\0II*\0\x08\0\0\0\0\0\x08\0\0\0",
        # Orientation as two shorts, as text, and far outside the block.
        b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x02\0\x06\0\x06\0\0\0\0",
        b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x02\0\0\0\x0266\0\0\0\0\0\0",
        b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\x7f\xff\xff\xff\x7f\xff\xff\xff\0\0\0\0",
    ],
)
@pytest.mark.parametrize("form", ["JPEG", "WEBP"])
def test_broken_exif_costs_nothing_but_itself(tmp_path, exif, form):
    options = {"lossless": True} if form == "WEBP" else {"quality": 95}
    picture = source(tmp_path, encoded(RGB, form, exif=exif, **options))
    assert picture.kind.orientation in (1, 6)
    difference = np.asarray(picture.pixels().resize(RGB.size)).astype(int) - np.asarray(RGB)
    assert picture.kind.orientation == 6 or np.abs(difference).mean() < 2


# -- refused -------------------------------------------------------------------------------------


def damaged(content, share=0.5, count=200):
    start = int(len(content) * share)
    return content[:start] + b"\xaa" * count + content[start + count :]


REFUSED = [
    ("empty", lambda: b"", "empty"),
    ("jpeg 2000", lambda: encoded(RGB, "JPEG2000"), "unsupported"),
    ("ico", lambda: encoded(RGB, "ICO"), "unsupported"),
    ("svg", lambda: b'<svg xmlns="http://www.w3.org/2000/svg"/>', "unsupported"),
    ("pdf", lambda: encoded(RGB, "PDF"), "unsupported"),
    ("eps", lambda: encoded(RGB, "EPS"), "unsupported"),
    ("avif cut", lambda: encoded(RGB, "AVIF")[:-20], "truncated"),
    ("heic cut", lambda: encoded(RGB, "HEIF")[:-20], "truncated"),
    ("jpeg cut", lambda: encoded(RGB, "JPEG")[:-20], "truncated"),
    ("webp cut", lambda: encoded(RGB, "WEBP")[:-20], "truncated"),
    ("tiff cut", lambda: encoded(RGB, "TIFF", compression="tiff_lzw")[:-200], "corrupt"),
    ("heic of noise", lambda: damaged(encoded(RGB, "HEIF"), 0.1), "corrupt"),
    ("avif of noise", lambda: damaged(encoded(RGB, "AVIF"), 0.1), "corrupt"),
    ("png of noise", lambda: damaged(encoded(RGB, "PNG")), "corrupt"),
    ("tiff of noise", lambda: b"II*\0" + b"\xff" * 60, "corrupt"),
    ("bigtiff of noise", lambda: b"II+\0\x08\0\0\0" + b"\xff" * 60, "corrupt"),
    ("mif1 of nothing", lambda: b"\0\0\0\x14ftypmif1\0\0\0\0mif1", "unsupported"),
    ("too many bytes", lambda: bytes(2_000), "too_big"),
    ("too many pixels", lambda: encoded(Image.new("1", (2_000, 2_000)), "PNG"), "too_many_pixels"),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_is_refused_has_a_code_and_a_sentence(tmp_path, make, code):
    limits = {"max_bytes": 1_999} if code == "too_big" else {"max_pixels": 1_000_000}
    with pytest.raises(EngineError) as refused:
        source(tmp_path, make(), **limits).pixels()
    assert refused.value.code is EngineCode(f"media_{code}")
    assert refused.value.message.endswith(".") and str(tmp_path) not in refused.value.message


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF"])
def test_cut_or_damaged_anywhere_a_picture_is_shown_or_refused(tmp_path, form):
    content = encoded(palette() if form == "GIF" else RGB, form)
    for step in range(1, 40):
        cut = content[: len(content) * step // 40]
        for made in (cut, damaged(content, step / 40, 9)):
            try:
                source(tmp_path, made).pixels()
            except EngineError as refused:
                assert refused.code.startswith("media_")
