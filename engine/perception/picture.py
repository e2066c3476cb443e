"""From encoded bytes to upright sRGB pixels: orientation once, colour once, white behind alpha."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageCms

from engine.api import EngineCode, EngineError
from engine.perception.detect import (
    DAMAGE,
    TURNED_BY_DECODER,
    Kind,
    cut_short,
    is_cut_short,
    open_picture,
)

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# A profile that moves no colour of a 9x9x9 lattice by more than this is sRGB already; applying it
# would cost 150 ms on 8 megapixels for nothing.
_INVISIBLE_STEP = 2

_BAD_PROFILE: tuple[type[Exception], ...] = (ImageCms.PyCMSError, *DAMAGE)


@dataclass(frozen=True)
class Source:
    """A file that was identified and may be decoded."""

    path: str
    kind: Kind

    def pixels(self) -> Image.Image:
        """Decode all pixels. Raises `EngineError` `media_truncated` or `media_corrupt`."""
        return self._decode(None)

    def draft(self, side_px: int) -> Image.Image | None:
        """Decode a JPEG at an eighth to a half of its size, at least `side_px` on its longer side.

        `None` when that would not be faster: not a JPEG, or no scale fits.
        """
        scale = max(self.kind.width, self.kind.height) // side_px
        if self.kind.media_type != "image/jpeg" or scale < 2:
            return None
        return self._decode(side_px)

    def _decode(self, draft_px: int | None) -> Image.Image:
        media_type = self.kind.media_type
        try:
            with open_picture(self.path, media_type) as picture:
                if draft_px is not None:
                    # Pillow takes the smallest eighth that is not below the size asked for.
                    longer = max(picture.size)
                    picture.draft(
                        None,
                        (
                            picture.width * draft_px // longer,
                            picture.height * draft_px // longer,
                        ),
                    )
                picture.load()
                rgb = to_srgb(picture)
        except DAMAGE as damage:
            if is_cut_short(self.path, media_type):
                raise cut_short(media_type) from damage
            raise EngineError(
                EngineCode.MEDIA_CORRUPT, f"The pixels of this {media_type} file are damaged."
            ) from damage
        is_turned = media_type in TURNED_BY_DECODER
        turn = None if is_turned else _UPRIGHT.get(self.kind.orientation)
        upright = rgb if turn is None else rgb.transpose(turn)
        # Nothing of the original's EXIF, profile or comments may reach a derived file.
        upright.info = {}
        return upright


def to_srgb(picture: Image.Image) -> Image.Image:
    """Return the loaded picture as RGB in sRGB, over white where it is transparent."""
    profile = picture.info.get("icc_profile")
    plain = _eight_bit(picture)
    alpha: Image.Image | None = None
    if plain.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in plain.info:
        rgba = plain.convert("RGBA")
        alpha = rgba.getchannel("A")
        plain = rgba.convert("RGB")
    elif plain.mode in ("1", "P"):
        plain = plain.convert("RGB")
    rgb = _through_profile(plain, profile) if profile else plain.convert("RGB")
    if alpha is None or alpha.getextrema() == (255, 255):
        return rgb
    white = Image.new("RGB", rgb.size, "white")
    white.paste(rgb, mask=alpha)
    return white


def _eight_bit(picture: Image.Image) -> Image.Image:
    """Scale deep gray to 8 bits.

    Integers by the smallest usual depth that holds the brightest pixel, so that black stays
    black and a 12-bit scan in a 16-bit file is not shown almost black; floats by their range.
    """
    if not picture.mode.startswith(("I", "F")):
        return picture
    values = np.asarray(picture)
    if picture.mode == "F":
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        low, high = float(values.min()), float(values.max())
        scaled = (values - low) * (255.0 / (high - low) if high > low else 0.0)
        return Image.fromarray(scaled.astype(np.uint8))
    brightest = int(values.max())
    depth = next((bits for bits in (8, 10, 12, 14, 16) if brightest < 1 << bits), 32)
    clipped = np.clip(values, 0, None).astype(np.uint32)
    return Image.fromarray((clipped >> (depth - 8)).astype(np.uint8))


def _through_profile(picture: Image.Image, profile: bytes) -> Image.Image:
    """Convert to sRGB; a profile that cannot be used is as good as none."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        transform = ImageCms.buildTransform(
            source, ImageCms.createProfile("sRGB"), picture.mode, "RGB"
        )
        if picture.mode == "RGB" and _changes_nothing(transform):
            return picture
        converted = ImageCms.applyTransform(picture, transform)
    except _BAD_PROFILE:
        return picture.convert("RGB")
    return converted if converted is not None else picture.convert("RGB")


def _changes_nothing(transform: ImageCms.ImageCmsTransform) -> bool:
    steps = np.linspace(0, 255, 9).astype(np.uint8)
    lattice = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(27, 27, 3)
    moved = ImageCms.applyTransform(Image.fromarray(lattice), transform)
    if moved is None:
        return False
    difference = np.abs(np.asarray(moved).astype(int) - lattice.astype(int))
    return int(difference.max()) <= _INVISIBLE_STEP
