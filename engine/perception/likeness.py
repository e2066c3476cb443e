"""Whether two stills show the same, so that a text that stands still is read once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

# A digit of a 1080p screen is some 6 x 9 px of a picture this wide.
_SIDE_PX = 640
# Steps of 255 in the mean of 3 x 3 px. What a codec or a sensor adds stays below 12; one changed
# digit of small print moves some place by 30 and more.
_SAME_BELOW = 16


@dataclass(frozen=True, eq=False)
class Glance:
    """A small, softened gray copy of a still [rows, columns]."""

    gray: NDArray[np.int16]

    @classmethod
    def of(cls, picture: Image.Image) -> Glance:
        """Take a glance at a picture of any size."""
        scale = min(1.0, _SIDE_PX / max(picture.size))
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        small = picture.convert("L").resize(size, Image.Resampling.BOX)
        return cls(np.asarray(small.filter(ImageFilter.BoxBlur(1)), np.int16))

    def is_like(self, other: Glance) -> bool:
        """Whether no place differs visibly."""
        if self.gray.shape != other.gray.shape:
            return False
        return int(np.abs(self.gray - other.gray).max()) < _SAME_BELOW
