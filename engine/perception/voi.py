"""From stored samples to gray on a screen: PS3.3 C.11.2, the same sums as the page's `voi.ts`.

The order is fixed: stored sample, modality (slope and intercept), values of interest (a table or a
window), and only then the inversion of MONOCHROME1. It is done for each frame by itself.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

Function = Literal["LINEAR", "LINEAR_EXACT", "SIGMOID"]
Samples = npt.NDArray[Any]
Shades = npt.NDArray[np.uint8]

_WHITE = 255


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which values are spread from black to white, in units of the modality (HU for CT)."""

    center: float
    width: float
    name: str = ""


class Lut(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the file's own: value `first` and below is its first entry, and so on."""

    first: int
    bits: int
    entries: tuple[int, ...]


class Gray(msgspec.Struct, frozen=True, kw_only=True):
    """How the samples of one frame become gray: `slope * sample + intercept` is the value.

    `lut` comes before `windows`; the first window is what the file is shown with otherwise.
    """

    slope: float = 1.0
    intercept: float = 0.0
    function: Function = "LINEAR"
    invert: bool = False
    windows: tuple[Window, ...] = ()
    lut: Lut | None = None


def is_usable(window: Window, function: Function) -> bool:
    """Whether the formula has a meaning for this width."""
    if not (np.isfinite(window.center) and np.isfinite(window.width)):
        return False
    return window.width >= 1 if function == "LINEAR" else window.width > 0


def whole_range(low: float, high: float, function: Function) -> Window:
    """The window that shows `low` as black and `high` as white, as nearly as `function` can."""
    if function == "LINEAR":
        return Window(center=(low + high) / 2 + 0.5, width=high - low + 1, name="Full range")
    return Window(center=(low + high) / 2, width=(high - low) or 1.0, name="Full range")


def shade(samples: Samples, gray: Gray) -> Shades:
    """Return what is seen by default: black is 0, white is 255."""
    # Of every sample type at most 65,536 values occur, so each is worked out once.
    info = np.iinfo(samples.dtype)
    every = np.arange(info.min, info.max + 1, dtype=np.int64)
    table = shades_of(every * gray.slope + gray.intercept, gray)
    return table[samples.astype(np.int64) - info.min]


def shades_of(values: Samples, gray: Gray) -> Shades:
    """Return the gray of modality values."""
    if gray.lut is not None:
        parts = _by_lut(values, gray.lut)
    else:
        parts = _by_window(values, gray.windows[0], gray.function)
    shades = np.floor(parts * _WHITE + 0.5).astype(np.uint8)
    return _WHITE - shades if gray.invert else shades


def _by_window(values: Samples, window: Window, function: Function) -> Samples:
    center, width = window.center, window.width
    if function == "SIGMOID":
        # Beyond this the result is black or white to the last bit, and `exp` would overflow.
        exponent = np.clip(-4 * (values - center) / width, -700, 700)
        return np.asarray(1 / (1 + np.exp(exponent)))
    if function == "LINEAR":
        center, width = center - 0.5, width - 1
    if width == 0:
        return np.where(values <= center, 0.0, 1.0)
    return np.asarray(np.clip((values - center) / width + 0.5, 0.0, 1.0))


def _by_lut(values: Samples, lut: Lut) -> Samples:
    entries = np.asarray(lut.entries, dtype=np.float64) / ((1 << lut.bits) - 1)
    places = np.clip(np.floor(values - lut.first), 0, len(entries) - 1).astype(np.int64)
    return np.asarray(entries[places])
