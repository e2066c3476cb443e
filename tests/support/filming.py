"""Videos made at test time by the real encoders, from pictures that the test knows."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

Shot = tuple[Image.Image, float]


def frames_of(shots: Iterable[Shot], rate: int) -> Iterator[tuple[float, Image.Image]]:
    """Each picture for so many seconds, as frames with their times."""
    at = 0.0
    for picture, seconds in shots:
        for _ in range(round(seconds * rate)):
            yield at, picture
            at += 1 / rate


def video(
    path: Path,
    frames: Iterable[tuple[float, Image.Image]],
    *,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    rate: int = 10,
    sound: np.ndarray | None = None,
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
) -> Path:
    """Encode; `sound` is 16-bit mono at 16 kHz. Times are presentation times in seconds."""
    clock = Fraction(1, 1000)
    with av.open(str(path), "w", options=container_options or {}) as container:
        track = None
        stream = None
        for at, picture in frames:
            if stream is None:
                stream = container.add_stream(codec, rate=rate, options=options or {})
                stream.width, stream.height = picture.size
                stream.pix_fmt = pixels
                stream.time_base = stream.codec_context.time_base = clock
                if sound is not None:
                    track = container.add_stream(_sound_codec(path), rate=48_000)
            frame = av.VideoFrame.from_image(picture.convert("RGB"))
            frame.pts, frame.time_base = round(at * 1000), clock
            container.mux(stream.encode(frame))
        if stream is not None:
            container.mux(stream.encode(None))
        if track is not None and sound is not None:
            _write_sound(container, track, sound)
    return path


def encoded(shots: Iterable[Shot], suffix: str, folder: Path, **more: object) -> bytes:
    """A whole file's bytes."""
    rate = int(more.pop("rate", 10))  # type: ignore[call-overload]
    path = video(folder / f"film{suffix}", frames_of(shots, rate), rate=rate, **more)  # type: ignore[arg-type]
    return path.read_bytes()


def jpeg(picture: Image.Image, quality: int = 85) -> bytes:
    """A camera's still."""
    out = io.BytesIO()
    picture.convert("RGB").save(out, "JPEG", quality=quality)
    return out.getvalue()


def _sound_codec(path: Path) -> str:
    return "aac" if path.suffix in (".mp4", ".mov") else "libopus"


def _write_sound(container: av.container.OutputContainer, track: object, sound: np.ndarray) -> None:
    resampler = av.AudioResampler("fltp" if track.name == "aac" else "s16", "mono", 48_000)
    for start in range(0, len(sound), 16_000):
        part = np.ascontiguousarray(sound[start : start + 16_000]).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(part, format="s16", layout="mono")
        frame.sample_rate, frame.pts = 16_000, start
        for out in resampler.resample(frame):
            container.mux(track.encode(out))
    for out in resampler.resample(None):
        container.mux(track.encode(out))
    container.mux(track.encode(None))
