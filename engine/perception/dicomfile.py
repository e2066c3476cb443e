"""A DICOM file that was found fit to be decoded: its kind, its frames, how they become gray."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace
from pydicom import config as pydicom_config
from pydicom import dcmread
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import apply_color_lut, apply_modality_lut
from pydicom.pixels.utils import iter_pixels
from pydicom.uid import (
    UID,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGExtended12Bit,
)

from engine.api import EngineCode, EngineError, Imaging
from engine.perception import dicomtags
from engine.perception.detect import DAMAGE, DICOM, Kind, cut_short
from engine.perception.voi import Function, Gray, Lut, Samples, Window, is_usable, whole_range

# What pydicom complains of can hold the value that it complains of.
pydicom_config.settings.reading_validation_mode = pydicom_config.IGNORE
logging.getLogger("pydicom").setLevel(logging.CRITICAL)

_PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_FUNCTIONS: tuple[Function, ...] = ("LINEAR", "LINEAR_EXACT", "SIGMOID")
_NATIVE = {
    ImplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    DeflatedExplicitVRLittleEndian,
}
_SEQUENCE_END = b"\xfe\xff\xdd\xe0"
_MAX_LUT_BITS = 16
_MAX_WINDOWS = 16
# Each is a file; a cine loop of five minutes has 9,000.
_MAX_FRAMES = 10_000


@dataclass(frozen=True)
class Frame:
    """One decoded frame: samples with `gray` that says how they are shown, or sRGB without."""

    samples: Samples
    gray: Gray | None


class DicomFile:
    """Made by `read_dicom`; `frames` decodes one after the other, each once."""

    def __init__(self, path: str, dataset: Dataset) -> None:
        self.path = path
        self._dataset = dataset
        self.count = int(dataset.get("NumberOfFrames") or 1)
        width, height = int(dataset.Columns), int(dataset.Rows)
        self.kind = Kind(DICOM, width, height, 1)
        self.is_color = dataset.get("SamplesPerPixel", 1) > 1 or self._is_palette
        self._shown_range: tuple[float, float] | None = None

    @property
    def _is_palette(self) -> bool:
        return bool(self._dataset.get("PhotometricInterpretation") == "PALETTE COLOR")

    def imaging(self) -> Imaging:
        """Say what may be told of it."""
        told = dicomtags.describe(self._dataset, self._groups(0))
        windows = () if self.is_color else self._windows(0, self._function(0))
        if windows:
            first = windows[0]
            told = replace(told, window_center=first.center, window_width=first.width)
        return replace(told, color=self.is_color)

    def frames(self) -> Iterator[Frame]:
        """Decode frame after frame. Raises `EngineError`."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # Frames named one by one: without names pydicom 3.0.2 refuses JPEG 2000 whose sign
                # differs from the header's.
                decoded = iter_pixels(self._dataset, indices=range(self.count))
                for index, samples in enumerate(decoded):
                    yield self._frame(index, samples)
        except DAMAGE as damage:
            raise self._why(damage) from damage

    def _why(self, damage: Exception) -> EngineError:
        syntax = self._dataset.file_meta.TransferSyntaxUID
        if syntax == JPEGExtended12Bit:
            return _unsupported("Its pixels are JPEG of 12 bits, which is not decoded.")
        if syntax not in _NATIVE and _ends_early(self._dataset):
            return cut_short(DICOM)
        return EngineError(EngineCode.MEDIA_CORRUPT, "The pixels of this DICOM file are damaged.")

    def _frame(self, index: int, samples: Samples) -> Frame:
        if self._is_palette:
            return Frame(_eight_bit(apply_color_lut(samples, self._dataset), 16), None)
        if self.is_color:
            return Frame(_eight_bit(samples, int(self._dataset.BitsStored)), None)
        return self._gray_frame(index, samples)

    def _gray_frame(self, index: int, samples: Samples) -> Frame:
        if samples.dtype.kind == "f":
            samples = np.nan_to_num(samples, posinf=0.0, neginf=0.0)
        slope, intercept = self._rescale(index)
        if self._dataset.get("ModalityLUTSequence"):
            samples, slope, intercept = apply_modality_lut(samples, self._dataset), 1.0, 0.0
        visible = self._without_padding(samples)
        function = self._function(index)
        windows = self._windows(index, function)
        if not windows:
            # All frames of a series in one window, or a cine loop would flicker.
            if self._shown_range is None:
                ends = [float(end) * slope + intercept for end in visible]
                self._shown_range = (min(ends), max(ends))
            windows = (whole_range(*self._shown_range, function),)
        samples, scale, offset = _sixteen_bit(samples)
        slope, intercept = slope * scale, intercept + slope * offset
        gray = Gray(
            slope=slope,
            intercept=intercept,
            function=function,
            invert=self._dataset.get("PhotometricInterpretation") == "MONOCHROME1",
            windows=windows,
            lut=self._lut(index),
        )
        return Frame(samples, gray)

    def _without_padding(self, samples: Samples) -> tuple[Any, Any]:
        """Smallest and greatest sample of what is a picture."""
        padding = self._dataset.get("PixelPaddingValue")
        if isinstance(padding, int) and not self._dataset.get("ModalityLUTSequence"):
            rest = samples[samples != padding]
            samples = rest if rest.size else samples
        return samples.min(), samples.max()

    def _rescale(self, index: int) -> tuple[float, float]:
        for source in [self._dataset, *self._groups(index)]:
            slope, intercept = source.get("RescaleSlope"), source.get("RescaleIntercept")
            if slope is not None and intercept is not None and float(slope) != 0:
                return float(slope), float(intercept)
        return 1.0, 0.0

    def _function(self, index: int) -> Function:
        for source in [self._dataset, *self._groups(index)]:
            stated = source.get("VOILUTFunction")
            for function in _FUNCTIONS:
                if function == stated:
                    return function
        return "LINEAR"

    def _windows(self, index: int, function: Function) -> tuple[Window, ...]:
        for source in [self._dataset, *self._groups(index)]:
            centers, widths = _list(source, "WindowCenter"), _list(source, "WindowWidth")
            windows = tuple(
                window
                for number, (center, width) in enumerate(zip(centers, widths, strict=False), 1)
                if is_usable(
                    window := Window(center=center, width=width, name=f"Window {number}"), function
                )
            )
            if windows:
                return windows[:_MAX_WINDOWS]
        return ()

    def _lut(self, index: int) -> Lut | None:
        for source in [self._dataset, *self._groups(index)]:
            for item in source.get("VOILUTSequence") or ():
                return _read_lut(item, self._dataset)
        return None

    def _groups(self, index: int) -> list[Dataset]:
        """The items of functional groups that hold for a frame, its own before the shared."""
        found: list[Dataset] = []
        own = self._dataset.get("PerFrameFunctionalGroupsSequence") or ()
        shared = self._dataset.get("SharedFunctionalGroupsSequence") or ()
        for group in [*own[index : index + 1], *shared[:1]]:
            for keyword in (
                "PixelValueTransformationSequence",
                "FrameVOILUTSequence",
                "PixelMeasuresSequence",
                "PlaneOrientationSequence",
            ):
                found += list(group.get(keyword) or ())[:1]
        return found


def read_dicom(path: str, *, max_pixels: int, max_series_pixels: int) -> DicomFile:
    """Read all but decode nothing.

    Raises `EngineError`: `media_unsupported`, `media_truncated`, `media_corrupt`,
    `media_too_many_pixels`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = dcmread(path, force=True)
            return _checked(path, dataset, max_pixels, max_series_pixels)
    except DAMAGE as damage:
        raise EngineError(
            EngineCode.MEDIA_CORRUPT, "The header of this DICOM file is damaged."
        ) from damage


def _checked(path: str, dataset: Dataset, max_pixels: int, max_series_pixels: int) -> DicomFile:
    _complete_meta(dataset)
    syntax = dataset.file_meta.TransferSyntaxUID
    if not any(keyword in dataset for keyword in _PIXELS):
        # An image whose pixels never came says of itself how large they are; of one whose
        # compressed pixels break off, pydicom gives nothing at all.
        if len(dataset) == 0 or (dataset.get("Rows") and dataset.get("BitsAllocated")):
            raise cut_short(DICOM)
        raise _unsupported(f"It holds no picture: {dicomtags.kind_of(dataset)}.")
    found = DicomFile(path, dataset)
    width, height, frames = found.kind.width, found.kind.height, found.count
    if width < 1 or height < 1 or frames < 1:
        raise ValueError("no pixels")
    if frames > _MAX_FRAMES:
        raise EngineError(
            EngineCode.MEDIA_TOO_MANY_PIXELS,
            f"The file has {frames:,} frames; at most {_MAX_FRAMES:,} are decoded.",
        )
    if width * height > max_pixels or width * height * frames > max_series_pixels:
        raise EngineError(
            EngineCode.MEDIA_TOO_MANY_PIXELS,
            f"The file has {frames:,} frames of {width:,} x {height:,} pixels; at most "
            f"{max_pixels:,} a frame and {max_series_pixels:,} in all are decoded.",
        )
    if syntax in _NATIVE:
        if _native_bytes(dataset) > sum(len(dataset[k].value) for k in _PIXELS if k in dataset):
            raise cut_short(DICOM)
    elif not _is_decodable(syntax):
        raise _unsupported(f"Its pixels are compressed as {syntax.name}, which is not decoded.")
    return found


def _complete_meta(dataset: Dataset) -> None:
    """Give a file without its meta header the transfer syntax that it was read by."""
    if not hasattr(dataset, "file_meta"):
        dataset.file_meta = FileMetaDataset()
    if "TransferSyntaxUID" not in dataset.file_meta:
        is_implicit, is_little = dataset.original_encoding
        explicit = ExplicitVRLittleEndian if is_little else ExplicitVRBigEndian
        dataset.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian if is_implicit else explicit


def _is_decodable(syntax: UID) -> bool:
    try:
        return bool(get_decoder(syntax).is_available)
    except NotImplementedError:
        return False


def _native_bytes(dataset: Dataset) -> int:
    pixels = int(dataset.Rows) * int(dataset.Columns) * int(dataset.get("NumberOfFrames") or 1)
    samples = pixels * int(dataset.get("SamplesPerPixel") or 1)
    if dataset.get("PhotometricInterpretation") == "YBR_FULL_422":
        samples = pixels * 2
    return math.ceil(samples * int(dataset.BitsAllocated) / 8)


def _ends_early(dataset: Dataset) -> bool:
    """Whether compressed pixels lack the end that the standard asks for."""
    with open(str(dataset.filename), "rb") as file:
        file.seek(max(0, os.path.getsize(str(dataset.filename)) - 65_536))
        return _SEQUENCE_END not in file.read()


def _unsupported(message: str) -> EngineError:
    return EngineError(EngineCode.MEDIA_UNSUPPORTED, f"This DICOM file cannot be shown. {message}")


def _list(source: Dataset, keyword: str) -> list[float]:
    value = source.get(keyword)
    if value is None or value == "":
        return []
    many = value if hasattr(value, "__iter__") and not isinstance(value, str) else [value]
    return [float(each) for each in many]


def _read_lut(item: Dataset, dataset: Dataset) -> Lut:
    count, first, bits = (int(each) for each in item.LUTDescriptor)
    data = item.LUTData
    if isinstance(data, bytes):
        is_little = dataset.file_meta.TransferSyntaxUID != ExplicitVRBigEndian
        wide = np.dtype("<u2" if is_little else ">u2")
        data = np.frombuffer(data, np.uint8 if len(data) < 2 * count else wide)
    entries = tuple(int(each) for each in data)[: count or 65_536]
    if not entries or not 1 <= bits <= _MAX_LUT_BITS:
        raise ValueError("no table")
    # Some writers state the depth of the input; what the entries need is the least it can be.
    return Lut(first=first, bits=max(bits, max(entries).bit_length()), entries=entries)


def _eight_bit(samples: Samples, bits: int) -> Samples:
    """Keep the upper eight bits; an entry of a palette may have only eight in sixteen."""
    samples = samples[..., :3]
    if samples.dtype == np.uint8:
        return samples
    if bits == 16 and samples.max() <= 255:
        return samples.astype(np.uint8)
    return (samples >> max(0, bits - 8)).astype(np.uint8)


def _sixteen_bit(samples: Samples) -> tuple[Samples, float, float]:
    """Return samples of at most 16 bits with the scale and offset that give the old ones back.

    Deeper ones are spread over the 65,536 steps that there are.
    """
    native = samples.astype(samples.dtype.newbyteorder("="), copy=False)
    if native.dtype in (np.uint8, np.uint16, np.int16):
        return native, 1.0, 0.0
    if native.dtype == np.int8:
        return native.astype(np.int16), 1.0, 0.0
    values = native.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    scale = (high - low) / 65_535 or 1.0
    return np.round((values - low) / scale).astype(np.uint16), scale, low
