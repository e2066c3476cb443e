"""The 24-byte header of every binary frame, and the frame behind it.

     0       1       2               4                               8
     ├───────┼───────┼───────────────┼───────────────────────────────┤
     │version│ kind  │     flags     │           stream id           │
     ├───────┴───────┴───────────────┼───────────────────────────────┤ 8
     │       sequence number         │   presentation time, µs       │
     ├───────────────────────────────┼───────────────────────────────┤ 16
     │   … presentation time         │        payload length         │
     └───────────────────────────────┴───────────────────────────────┘ 24

All numbers in network order. The payload has at most 64 KiB, so that a large upload never
blocks a small message behind it.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag

import msgspec

from protocol.errors import BadMessage, ErrorCode

VERSION = 1
HEADER_BYTES = 24
MAX_PAYLOAD_BYTES = 64 * 1024

_HEADER = struct.Struct("!BBHIIqI")


class MediaKind(IntEnum):
    """What the payload is a part of."""

    FILE = 1
    CAMERA = 2
    MICROPHONE = 3


class Flags(IntFlag):
    """What a frame says beside its payload."""

    LAST_OF_STILL = 1
    """The camera's still that has this frame's time is whole with it."""


class MediaFrame(msgspec.Struct, frozen=True):
    """One chunk of one stream. `sequence` counts chunks from 0; `pts_us` is 0 for files.

    All chunks of a camera's still carry the time at which it was taken, by the client's clock.
    """

    stream: int
    sequence: int
    payload: bytes
    kind: MediaKind = MediaKind.FILE
    flags: int = 0
    pts_us: int = 0

    @classmethod
    def parse(cls, frame: bytes) -> MediaFrame:
        """Read a binary frame; raises `BadMessage` (`bad_frame`) when it is not one."""
        if len(frame) < HEADER_BYTES:
            raise BadMessage("binary frame shorter than its header", code=ErrorCode.BAD_FRAME)
        version, kind, flags, stream, sequence, pts_us, length = _HEADER.unpack_from(frame)
        if version != VERSION:
            raise BadMessage(f"media version {version} is not 1", code=ErrorCode.BAD_FRAME)
        if kind not in MediaKind._value2member_map_:
            raise BadMessage(f"media kind {kind} is unknown", code=ErrorCode.BAD_FRAME)
        if length != len(frame) - HEADER_BYTES:
            raise BadMessage("payload length differs from the frame's", code=ErrorCode.BAD_FRAME)
        if length > MAX_PAYLOAD_BYTES:
            raise BadMessage("payload over 64 KiB", code=ErrorCode.BAD_FRAME, ref=str(stream))
        return cls(stream, sequence, frame[HEADER_BYTES:], MediaKind(kind), flags, pts_us)

    def serialize(self) -> bytes:
        """Write the binary frame; raises `ValueError` when a field is out of its range."""
        if len(self.payload) > MAX_PAYLOAD_BYTES:
            raise ValueError(f"payload of {len(self.payload)} bytes is over 64 KiB")
        try:
            header = _HEADER.pack(
                VERSION,
                self.kind,
                self.flags,
                self.stream,
                self.sequence,
                self.pts_us,
                len(self.payload),
            )
        except struct.error as error:
            raise ValueError(f"media header: {error}") from error
        return header + self.payload
