"""A look at a DICOM file inside a decoder worker: what it is, its levels, then every frame."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from PIL import Image

from engine.api import Detected, Progress
from engine.perception.detect import Kind, is_declared_wrongly
from engine.perception.dicomfile import Frame, read_dicom
from engine.perception.levels import Pyramid
from engine.perception.voi import Gray, Samples, shade
from engine.perception.wire import UNFINISHED_SUFFIX, Answer, Decode, Finished

_LENGTH = struct.Struct("<I")
# Typed arrays of a browser begin at multiples of their element; eight leaves room for any.
_ALIGN_BYTES = 8
_PNG_EFFORT = 1


class FrameHeader(Gray, frozen=True, kw_only=True):
    """What stands before the samples of a gray frame; `sample` is a type of the page's arrays."""

    width: int
    height: int
    sample: str


@dataclass(frozen=True)
class _FirstFrame:
    """The picture that levels are made of: marks without a frame number are on it."""

    path: str
    kind: Kind

    def draft(self, side_px: int) -> Image.Image | None:
        """Nothing smaller is decoded faster."""
        return None


def decode_dicom(request: Decode) -> Iterator[Answer]:
    """Announce, show the first frame in rising levels, then write all frames in their order.

    Text is not read: what is burned into such pictures is, as a rule, who and where.
    """
    began = time.perf_counter()
    timings: dict[str, float] = {}

    def passed(name: str) -> None:
        timings[name] = time.perf_counter() - began

    found = read_dicom(
        request.path,
        max_pixels=request.max_pixels,
        max_series_pixels=request.max_series_pixels,
    )
    passed("detected")
    kind = found.kind
    yield Detected(
        media=request.media,
        media_type=kind.media_type,
        width=kind.width,
        height=kind.height,
        mismatch=is_declared_wrongly(request.declared_type, kind.media_type),
        frames=found.count,
        imaging=found.imaging(),
    )
    folder = Path(request.derived_dir) / "frames"
    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    for frame in found.frames():
        if done == 0:
            passed("decoded")
            pyramid = Pyramid(request.media, _FirstFrame(request.path, kind), request.derived_dir)
            yield from pyramid.rest(picture_of(frame))
            passed("levels")
        _write(folder, done, frame)
        done += 1
        # A hundred steps are enough for a bar, whatever the number of frames.
        if done * 100 // found.count > (done - 1) * 100 // found.count:
            yield Progress(media=request.media, stage="frames", done=done, total=found.count)
    passed("frames")
    yield Finished(timings=timings)


def picture_of(frame: Frame) -> Image.Image:
    """The frame as it is seen by default, in sRGB."""
    if frame.gray is None:
        return Image.fromarray(np.ascontiguousarray(frame.samples))
    return Image.fromarray(shade(frame.samples, frame.gray)).convert("RGB")


def encode_gray(samples: Samples, gray: Gray) -> bytes:
    """Length of the header, header, samples row by row; all little-endian."""
    height, width = samples.shape
    stated = {name: getattr(gray, name) for name in gray.__struct_fields__}
    header = FrameHeader(width=width, height=height, sample=samples.dtype.name, **stated)
    text = msgspec.json.encode(header)
    text += b" " * (-(_LENGTH.size + len(text)) % _ALIGN_BYTES)
    body = samples.astype(samples.dtype.newbyteorder("<"), copy=False).tobytes()
    return _LENGTH.pack(len(text)) + text + body


def _write(folder: Path, number: int, frame: Frame) -> None:
    unfinished = folder / f".{number}{UNFINISHED_SUFFIX}"
    if frame.gray is None:
        picture_of(frame).save(unfinished, "PNG", compress_level=_PNG_EFFORT)
    else:
        unfinished.write_bytes(encode_gray(frame.samples, frame.gray))
    os.replace(unfinished, folder / str(number))
