"""What perception and its worker processes say to each other: length-prefixed msgpack frames.

One request at a time per worker. The worker answers `Accepted`, any number of observations (and
`PixelsReady` when it decodes a picture, `Tracks` a video, `Heard` sound), and ends with exactly one
of `Finished` or `MediaFailed`. Behind `Hear` without a path come its bytes as `Chunk`s and `End`.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

from engine.api import (
    Detected,
    Keyframe,
    LabRow,
    LevelReady,
    MediaFailed,
    Progress,
    Speech,
    TextRow,
)

_LENGTH = struct.Struct(">I")

# A frame holds one observation; the longest is a text row. A longer one means a broken worker.
MAX_FRAME_BYTES = 1024 * 1024


# Names that a worker uses under `derived_dir` until it is done; swept when the look ends.
PIXELS_NAME = ".pixels.rgb"
SAMPLES_NAME = ".samples.s16"
UNFINISHED_SUFFIX = ".part"
# What stays there of a short recording, for a model that hears: 16 kHz mono in 16 bits.
SOUND_NAME = "sound.wav"


class Decode(msgspec.Struct, frozen=True, kw_only=True, tag="decode"):
    """Look at the file `path` and write its levels and pixels under `derived_dir`."""

    media: str
    path: str
    derived_dir: str
    declared_type: str | None
    max_bytes: int
    max_pixels: int
    max_ratio: int
    max_series_pixels: int
    cpu_s: int


class Pixels(msgspec.Struct, frozen=True, kw_only=True, tag="raw"):
    """Upright sRGB pixels at `path`: raw uint8 of shape [height, width, 3]."""

    path: str
    width: int
    height: int


class Read(msgspec.Struct, frozen=True, kw_only=True, tag="read"):
    """Read the text in `pixels`, or in a keyframe that the decoder wrote."""

    media: str
    pixels: Pixels | Keyframe
    cpu_s: int


class Film(msgspec.Struct, frozen=True, kw_only=True, tag="film"):
    """Decode the moving pictures in the file `path` to keyframes under `derived_dir`."""

    media: str
    path: str
    derived_dir: str
    declared_type: str | None
    max_bytes: int
    max_pixels: int
    max_film_s: float
    cpu_s: int


class Still(msgspec.Struct, frozen=True, kw_only=True, tag="still"):
    """Make keyframe `frame` of the JPEG at `path` unless it is like keyframe `last_read`.

    `is_due` makes one even then.
    """

    media: str
    path: str
    derived_dir: str
    frame: int
    pts_us: int
    last_read: int | None
    is_due: bool
    max_bytes: int
    max_pixels: int
    cpu_s: int


class Hear(msgspec.Struct, frozen=True, kw_only=True, tag="hear"):
    """Decode sound into a file of 16-bit mono samples at 16 kHz under `derived_dir`.

    `path` None means that the bytes follow. `cpu_s` is for the whole file, or for each chunk.
    `is_track` means that moving pictures beside the sound are somebody else's work.
    """

    media: str
    path: str | None
    derived_dir: str
    declared_type: str | None
    max_bytes: int
    max_sound_s: float
    cpu_s: int
    is_track: bool = False


class Chunk(msgspec.Struct, frozen=True, kw_only=True, tag="chunk"):
    """More bytes of what is being heard."""

    data: bytes


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """No more bytes come."""


class Listen(msgspec.Struct, frozen=True, kw_only=True, tag="listen"):
    """Find speech in the samples `[start, stop)` of `samples` and write it down.

    The worker goes on at `start`, unless it is new to this item (the one before was lost): then
    it begins at `settled`. `utterances` counts those found before; `is_last` ends an utterance.
    """

    media: str
    samples: str
    settled: int
    start: int
    stop: int
    utterances: int
    is_last: bool
    cpu_s: int


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    """The worker began with the request; before this a lost worker costs nothing."""


class PixelsReady(msgspec.Struct, frozen=True, kw_only=True, tag="pixels"):
    """The picture is decoded, its text may be read while the larger levels are still made."""

    pixels: Pixels


class Tracks(msgspec.Struct, frozen=True, kw_only=True, tag="tracks"):
    """What a container has."""

    has_pictures: bool
    has_sound: bool


class Heard(msgspec.Struct, frozen=True, kw_only=True, tag="heard"):
    """So many samples lie in the file `samples` now."""

    samples: str
    count: int


class Listened(msgspec.Struct, frozen=True, kw_only=True, tag="listened"):
    """Everything before `position` was listened to; what is being said began at `settled`."""

    position: int
    settled: int


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """All was done; `timings` in seconds since the request was accepted."""

    timings: dict[str, float]


Request = Decode | Read | Film | Still | Hear | Listen
Sent = Request | Chunk | End
Answer = (
    Accepted
    | PixelsReady
    | Tracks
    | Heard
    | Listened
    | Finished
    | Detected
    | LevelReady
    | Keyframe
    | TextRow
    | LabRow
    | Speech
    | Progress
    | MediaFailed
)

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Sent] = msgspec.msgpack.Decoder(Sent)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)

HEADER_BYTES = _LENGTH.size


def frame(message: Sent | Answer) -> bytes:
    """Return the message with its length in front, ready to be written."""
    payload = _encoder.encode(message)
    return _LENGTH.pack(len(payload)) + payload


def payload_length(header: bytes) -> int:
    """Return the length that a header announces; raises `ValueError` beyond `MAX_FRAME_BYTES`."""
    (length,) = _LENGTH.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes is longer than any message")
    return int(length)


def parse_answer(payload: bytes) -> Answer:
    """Raise `msgspec.DecodeError` when the payload is no answer."""
    return _answers.decode(payload)


def next_sent(stream: BinaryIO) -> Sent | None:
    """Read what the parent sent, blocking; `None` when it closed the pipe."""
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    return _requests.decode(stream.read(payload_length(header)))


def next_request(stream: BinaryIO) -> Request | None:
    """Read one request, passing over bytes of an item that failed before its end."""
    while isinstance(sent := next_sent(stream), Chunk | End):
        pass
    return sent
