import io

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageDraw

from engine.api import EngineCode, EngineError
from engine.perception.detect import identify
from engine.perception.picture import Source

# What each EXIF orientation asks for, undone: how the stored pixels lie for an upright picture.
STORED_AS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def source(tmp_path, content):
    path = tmp_path / "upload"
    path.write_bytes(content)
    return Source(str(path), identify(str(path), max_bytes=10**9, max_pixels=10**8))


def encoded(picture, form, **options):
    stream = io.BytesIO()
    picture.save(stream, form, **options)
    return stream.getvalue()


def upright(size=(96, 64)):
    picture = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(picture)
    width, height = size
    draw.rectangle((0, 0, width // 3, height // 4), fill="red")
    draw.rectangle((width // 2, height // 2, width, height), fill="blue")
    return picture


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_orientation_is_applied_exactly_once(tmp_path, form, orientation):
    """L51: a picture that a phone stored lying must come out standing, and only once."""
    reference = upright()
    turn = STORED_AS[orientation]
    stored = reference if turn is None else reference.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if form == "WEBP" else {"quality": 95} if form == "JPEG" else {}
    picture = source(tmp_path, encoded(stored, form, exif=exif, **options))
    pixels = picture.pixels()
    assert pixels.size == reference.size == (picture.kind.width, picture.kind.height)
    assert picture.kind.orientation == orientation
    difference = np.abs(np.asarray(pixels).astype(int) - np.asarray(reference).astype(int))
    assert difference.mean() < (2 if form == "JPEG" else 0.001)
    assert not pixels.info


@pytest.mark.parametrize("orientation", [1, 6, 8])
def test_a_draft_lies_as_the_picture_does(tmp_path, orientation):
    reference = upright((1600, 1200))
    turn = STORED_AS[orientation]
    stored = reference if turn is None else reference.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    draft = source(tmp_path, encoded(stored, "JPEG", exif=exif)).draft(256)
    assert draft is not None and 256 <= max(draft.size) < 800
    small = reference.resize(draft.size)
    assert np.abs(np.asarray(draft).astype(int) - np.asarray(small).astype(int)).mean() < 3


def test_only_a_jpeg_that_is_much_larger_has_a_draft(tmp_path):
    assert source(tmp_path, encoded(upright((1600, 1200)), "PNG")).draft(256) is None
    assert source(tmp_path, encoded(upright((300, 200)), "JPEG")).draft(256) is None


def test_transparent_pixels_are_white(tmp_path):
    picture = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    picture.putpixel((0, 0), (0, 0, 255, 255))
    pixels = source(tmp_path, encoded(picture, "PNG")).pixels()
    assert pixels.getpixel((0, 0)) == (0, 0, 255)
    assert pixels.getpixel((3, 3)) == (255, 255, 255)


def test_a_palette_with_a_transparent_colour_is_over_white(tmp_path):
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([255, 0, 0, 0, 255, 0])
    picture.putpixel((0, 0), 0)
    pixels = source(tmp_path, encoded(picture, "GIF", transparency=1)).pixels()
    assert pixels.getpixel((0, 0)) == (255, 0, 0)
    assert pixels.getpixel((3, 3)) == (255, 255, 255)


def test_cmyk_becomes_rgb(tmp_path):
    picture = Image.new("CMYK", (32, 32), (0, 255, 255, 0))
    red, green, blue = source(tmp_path, encoded(picture, "JPEG")).pixels().getpixel((9, 9))
    assert red > 200 and green < 40 and blue < 40


@pytest.mark.parametrize("brightest", [255, 4095, 65535])
@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_deep_gray_is_scaled_by_its_depth(tmp_path, form, brightest):
    values = np.linspace(0, brightest, 64).astype(np.uint16).reshape(8, 8)
    pixels = source(tmp_path, encoded(Image.fromarray(values), form)).pixels()
    shown = np.asarray(pixels)[:, :, 0].ravel()
    assert shown[0] == 0 and shown[-1] >= 254
    assert (np.diff(shown.astype(int)) >= 0).all()


def test_floating_gray_is_scaled_by_its_range(tmp_path):
    values = np.linspace(-1.5, 2.5, 64).astype(np.float32).reshape(8, 8)
    shown = np.asarray(source(tmp_path, encoded(Image.fromarray(values), "TIFF")).pixels())
    assert shown.min() == 0 and shown.max() >= 254


def test_an_embedded_profile_moves_colours_to_srgb(tmp_path):
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    picture = Image.new("RGB", (8, 8), (200, 30, 60))
    same = source(tmp_path, encoded(picture, "PNG", icc_profile=srgb)).pixels()
    assert same.getpixel((1, 1)) == (200, 30, 60)
    # A profile for another kind of colour cannot be used on RGB: the pixels stay as they are.
    plain = source(tmp_path, encoded(picture, "PNG", icc_profile=lab)).pixels()
    assert plain.getpixel((1, 1)) == (200, 30, 60)


def test_a_profile_that_is_noise_is_ignored(tmp_path):
    content = encoded(upright(), "PNG", icc_profile=bytes(range(200)))
    assert source(tmp_path, content).pixels().getpixel((1, 1)) == (255, 0, 0)


def test_damaged_pixels_are_corrupt(tmp_path):
    content = bytearray(encoded(upright((300, 300)), "PNG"))
    start = content.index(b"IDAT") + 20
    content[start : start + 40] = bytes(40)
    with pytest.raises(EngineError) as refused:
        source(tmp_path, bytes(content)).pixels()
    assert refused.value.code is EngineCode.MEDIA_CORRUPT


def test_only_the_first_frame_of_an_animation_is_taken(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert source(tmp_path, content).pixels().getpixel((4, 4)) == (255, 0, 0)
