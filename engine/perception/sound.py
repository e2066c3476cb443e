"""Sound of any kind, whole or still coming, as 16-bit mono samples at 16 kHz in a file."""

from __future__ import annotations

import time
import wave
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from engine.api import Detected, EngineCode, EngineError
from engine.perception.heif import PICTURE_BRANDS
from engine.perception.wire import (
    SAMPLES_NAME,
    SOUND_NAME,
    UNFINISHED_SUFFIX,
    Answer,
    Finished,
    Hear,
    Heard,
)

if TYPE_CHECKING:
    import av
    import numpy as np
    from av.audio.resampler import AudioResampler

RATE = 16_000
BYTES_A_SAMPLE = 2

_RAW_TYPE = "audio/pcm"
_EBML = b"\x1a\x45\xdf\xa3"
_SAME_TYPE = {
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/mp3": "audio/mpeg",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "audio/x-flac": "audio/flac",
    "application/ogg": "audio/ogg",
    "audio/opus": "audio/ogg",
    "video/webm": "audio/webm",
    "audio/x-matroska": "audio/webm",
}
_FORMATS = {
    "audio/wav": "wav",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
    "audio/webm": "matroska",
    "audio/mpeg": "mp3",
    "audio/aac": "aac",
    "audio/mp4": "mov",
}
# Models that hear take no more than this.
_KEPT_S = 30
_READ_BYTES = 64 * 1024
# A whole file is handed on in pieces of this length, fed bytes as soon as they are decoded.
_PIECE_SAMPLES = 5 * RATE


@dataclass(frozen=True)
class Raw:
    """Samples without a container: 16-bit little-endian, channels interleaved."""

    rate: int
    channels: int


def raw_format(declared: str | None) -> Raw | None:
    """Read "audio/pcm;rate=48000;channels=1"; None when it names something else.

    Raises `EngineError` `media_unsupported` for a rate or a number of channels that cannot be.
    """
    plain, *parameters = (part.strip().lower() for part in (declared or "").split(";"))
    if plain != _RAW_TYPE:
        return None
    said = dict(part.partition("=")[::2] for part in parameters)
    try:
        raw = Raw(int(said.get("rate", "")), int(said.get("channels", "1")))
    except ValueError:
        raw = Raw(0, 0)
    if not (4_000 <= raw.rate <= 384_000 and 1 <= raw.channels <= 16):
        raise EngineError(
            EngineCode.MEDIA_UNSUPPORTED, "Raw sound needs its rate: audio/pcm;rate=48000."
        )
    return raw


def is_live(declared: str | None) -> bool:
    """Whether fed bytes of this type are listened to as they come."""
    return (declared or "").strip().lower().startswith("audio/")


def sound_type(head: bytes) -> str | None:
    """Tell by a file's first bytes (16 or more) whether it may be sound, and which."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "audio/wav"
    if head[:4] == b"fLaC":
        return "audio/flac"
    if head[:4] == b"OggS":
        return "audio/ogg"
    if head[:4] == _EBML:
        return "audio/webm"
    if head[4:8] == b"ftyp" and head[8:12] not in PICTURE_BRANDS:
        return "audio/mp4"
    if head[:3] == b"ID3":
        return "audio/mpeg"
    if len(head) >= 4 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        layer = head[1] >> 1 & 3
        if layer in (1, 2) and head[2] >> 4 != 15 and head[2] >> 2 & 3 != 3:
            return "audio/mpeg"
        if layer == 0 and head[1] & 0xF0 == 0xF0 and head[2] >> 2 & 15 < 13:
            return "audio/aac"
    return None


def is_container(head: bytes) -> bool:
    """Tell by a file's first bytes (12 or more) whether moving pictures may be in it."""
    if head[4:8] == b"ftyp":
        return head[8:12] not in PICTURE_BRANDS
    return head[:4] == _EBML or (head[:4] == b"RIFF" and head[8:12] == b"AVI ")


def hear(request: Hear, chunks: Callable[[], bytes | None]) -> Iterator[Answer]:
    """Decode to the end; `chunks` gives the bytes that follow a request without a path."""
    began = time.perf_counter()
    if request.path is None:
        source: BinaryIO | _Fed = _Fed(chunks, request.max_bytes)
    else:
        source = open(request.path, "rb")
    samples = Path(request.derived_dir) / SAMPLES_NAME
    samples.parent.mkdir(parents=True, exist_ok=True)
    try:
        with samples.open("wb") as written:
            decoding = _Decoding(request, source)
            count = told = 0
            for piece in decoding.pieces():
                written.write(piece.tobytes())
                count += len(piece)
                if count > request.max_sound_s * RATE:
                    raise EngineError(
                        EngineCode.MEDIA_TOO_BIG,
                        f"The recording is longer than {request.max_sound_s:,.0f} s.",
                    )
                if request.path is None or count - told >= _PIECE_SAMPLES:
                    written.flush()
                    told = count
                    yield Heard(samples=str(samples), count=count)
    finally:
        source.close()
    yield Detected(
        media=request.media,
        media_type=decoding.media_type,
        width=0,
        height=0,
        mismatch=_is_declared_wrongly(request.declared_type, decoding.media_type),
        duration_s=decoding.duration_s,
    )
    yield Heard(samples=str(samples), count=count)
    if 0 < count <= _KEPT_S * RATE:
        _keep(samples)
    yield Finished(timings={"heard": time.perf_counter() - began})


def _keep(samples: Path) -> None:
    """Leave the samples as a WAV file beside them."""
    unfinished = samples.with_name(f".{SOUND_NAME}{UNFINISHED_SUFFIX}")
    with wave.open(str(unfinished), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(BYTES_A_SAMPLE)
        sound.setframerate(RATE)
        sound.writeframes(samples.read_bytes())
    unfinished.replace(samples.with_name(SOUND_NAME))


class _Fed:
    """A file whose bytes are still coming, in segments: each begins with a header of its own.

    A recorder that is started again in the middle writes a new header, always at the start of
    a chunk; the segment before it then reads as ended.
    """

    def __init__(self, chunks: Callable[[], bytes | None], max_bytes: int) -> None:
        self._chunks = chunks
        self._left = max_bytes
        self._rest = b""
        self._is_at_start = True
        self._is_over = False

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes; nothing at the end of the segment."""
        if not self._rest and not self._is_over:
            self._fill()
        if self._rest[:4] == _EBML and not self._is_at_start:
            return b""
        part, self._rest = self._rest[:size], self._rest[size:]
        self._is_at_start = self._is_at_start and not part
        return part

    def head(self) -> bytes:
        """Return the first bytes of the segment without taking them; empty when all is over."""
        self._is_at_start = True
        while len(self._rest) < 16 and not self._is_over:
            self._fill()
        return self._rest[:16]

    def close(self) -> None:
        """Nothing is held."""

    def _fill(self) -> None:
        """Wait for bytes; an empty chunk is normal and says nothing."""
        while True:
            chunk = self._chunks()
            if chunk is None:
                self._is_over = True
                return
            if chunk:
                break
        self._left -= len(chunk)
        if self._left < 0:
            raise EngineError(EngineCode.MEDIA_TOO_BIG, "The recording has too many bytes.")
        self._rest += chunk


class _Decoding:
    """One recording; `media_type` and `duration_s` are whole when `pieces` has ended."""

    def __init__(self, request: Hear, source: BinaryIO | _Fed) -> None:
        self.media_type = ""
        self._source = source
        self._is_track = request.is_track
        self._raw = raw_format(request.declared_type)
        self._resampler: AudioResampler | None = None
        self._setup: tuple[str, str, int] | None = None
        self._decoded = 0
        self._heard: Counter[int] = Counter()

    @property
    def duration_s(self) -> float:
        """Samples by their rate, in seconds: a sum of rounded chunks would drift."""
        return sum(samples / rate for rate, samples in self._heard.items())

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield all samples at `RATE`, the resampler's last ones included."""
        if self._raw is not None:
            self.media_type = f"{_RAW_TYPE};rate={self._raw.rate};channels={self._raw.channels}"
            yield from self._raw_pieces(self._raw)
        else:
            yield from self._segments()
        yield from self._flush()

    def _raw_pieces(self, raw: Raw) -> Iterator[np.ndarray]:
        import av
        import numpy as np

        rest, whole = b"", raw.channels * BYTES_A_SAMPLE
        while block := self._source.read(_READ_BYTES):
            block = rest + block
            # A chunk may end inside a sample.
            cut = len(block) - len(block) % whole
            rest, block = block[cut:], block[:cut]
            if not block:
                continue
            channels = np.frombuffer(block, "<i2").reshape(-1, raw.channels)
            mono = channels[:, 0] if raw.channels == 1 else channels.mean(axis=1).astype("<i2")
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(mono).reshape(1, -1), format="s16", layout="mono"
            )
            frame.sample_rate = raw.rate
            self._heard[raw.rate] += len(channels)
            yield from self._resample(frame)
        if not self._heard:
            raise EngineError(EngineCode.MEDIA_EMPTY, "The recording is empty.")

    def _segments(self) -> Iterator[np.ndarray]:
        while head := self._head():
            found = sound_type(head)
            if found is None:
                if self.media_type:
                    return
                raise EngineError(EngineCode.MEDIA_UNSUPPORTED, "This is no sound that is known.")
            self.media_type = self.media_type or found
            yield from self._segment(found)
            if not isinstance(self._source, _Fed):
                return
        if not self.media_type:
            raise EngineError(EngineCode.MEDIA_EMPTY, "The recording is empty.")

    def _head(self) -> bytes:
        if isinstance(self._source, _Fed):
            return self._source.head()
        head = self._source.read(16)
        self._source.seek(0)
        return head

    def _segment(self, media_type: str) -> Iterator[np.ndarray]:
        import av

        self._decoded = 0
        try:
            # Titles in letters of another character set must not silence what is said.
            opened = av.open(
                self._source, "r", format=_FORMATS[media_type], metadata_errors="replace"
            )
            with opened as container:
                if not self._is_track and container.streams.video and not _is_cover(container):
                    raise EngineError(EngineCode.MEDIA_UNSUPPORTED, "A microphone sends no video.")
                if not container.streams.audio:
                    raise EngineError(
                        EngineCode.MEDIA_UNSUPPORTED, "There is no sound in this file."
                    )
                yield from self._packets(container)
        except av.FFmpegError as damage:
            # What was decoded before the damage is worth keeping; often only the end is cut.
            if not self._decoded:
                raise _damaged(media_type) from damage

    def _packets(self, container: av.container.InputContainer) -> Iterator[np.ndarray]:
        import av

        damaged = 0
        for packet in container.demux(container.streams.audio[0]):
            try:
                frames = packet.decode()
            except av.FFmpegError:
                # One packet of noise must not silence the rest.
                damaged += 1
                continue
            for frame in frames:
                assert isinstance(frame, av.AudioFrame)
                self._decoded += frame.samples
                self._heard[frame.sample_rate] += frame.samples
                yield from self._resample(frame)
        if damaged and not self._decoded:
            raise _damaged(self.media_type)

    def _resample(self, frame: av.AudioFrame) -> Iterator[np.ndarray]:
        from av.audio.resampler import AudioResampler

        setup = (frame.format.name, frame.layout.name, frame.sample_rate)
        if setup != self._setup:
            yield from self._flush()
            self._resampler, self._setup = AudioResampler("s16", "mono", RATE), setup
        assert self._resampler is not None
        # The place of a sample is its count; time stamps of containers jump.
        frame.pts = None
        for out in self._resampler.resample(frame):
            yield out.to_ndarray().reshape(-1)

    def _flush(self) -> Iterator[np.ndarray]:
        if self._resampler is not None:
            for out in self._resampler.resample(None):
                yield out.to_ndarray().reshape(-1)
            self._resampler = None


def _is_cover(container: av.container.InputContainer) -> bool:
    """Whether the only moving pictures are the cover of an album."""
    from av.stream import Disposition

    return all(stream.disposition & Disposition.attached_pic for stream in container.streams.video)


def _damaged(media_type: str) -> EngineError:
    return EngineError(EngineCode.MEDIA_CORRUPT, f"This {media_type} recording is damaged.")


def _is_declared_wrongly(declared: str | None, media_type: str) -> bool:
    plain = (declared or "").partition(";")[0].strip().lower()
    if plain in ("", "application/octet-stream"):
        return False
    return _SAME_TYPE.get(plain, plain) != media_type.partition(";")[0]
