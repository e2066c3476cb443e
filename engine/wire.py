"""Frames between a client and the engine's process: a length and one tagged msgpack struct."""

from __future__ import annotations

import asyncio
import struct

import msgspec

from engine.api import (
    EngineCode,
    Health,
    Media,
    Observation,
    Stats,
    Turn,
    TurnEvent,
)

# A conversation with every observation of its pictures; far above what a context can hold.
MAX_FRAME_BYTES = 16 << 20
_LENGTH = struct.Struct("!I")


class BrokenFrame(Exception):
    """The peer sent what is no frame of this protocol; the connection cannot go on."""


# -- client to engine; `call` numbers the answer ---------------------------------------------


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    call: int
    turn: Turn


class Open(msgspec.Struct, frozen=True, tag="open"):
    call: int
    media: Media


class Abandon(msgspec.Struct, frozen=True, tag="abandon"):
    """The caller no longer listens to the stream `call`."""

    call: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    call: int
    turn: str


class Feed(msgspec.Struct, frozen=True, tag="feed"):
    call: int
    media: str
    chunk: bytes
    pts_us: int


class Close(msgspec.Struct, frozen=True, tag="close"):
    call: int
    media: str


class Prefetch(msgspec.Struct, frozen=True, tag="prefetch"):
    call: int
    session: str


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    call: int
    session: str


class AskHealth(msgspec.Struct, frozen=True, tag="health"):
    call: int


class AskStats(msgspec.Struct, frozen=True, tag="stats"):
    call: int


Request = Submit | Open | Abandon | Cancel | Feed | Close | Prefetch | Drop | AskHealth | AskStats

# -- engine to client ------------------------------------------------------------------------


class Event(msgspec.Struct, frozen=True, tag="event"):
    call: int
    event: TurnEvent


class Observed(msgspec.Struct, frozen=True, tag="observed"):
    call: int
    observation: Observation


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The request is done; `found` is what `cancel` says."""

    call: int
    found: bool = True


class IsHealthy(msgspec.Struct, frozen=True, tag="is_healthy"):
    call: int
    health: Health


class HasStats(msgspec.Struct, frozen=True, tag="has_stats"):
    call: int
    stats: Stats


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    call: int
    code: EngineCode
    message: str


Reply = Event | Observed | Answered | IsHealthy | HasStats | Refused

_encoder = msgspec.msgpack.Encoder()
requests = msgspec.msgpack.Decoder(Request)
replies = msgspec.msgpack.Decoder(Reply)


def frame(message: Request | Reply) -> bytes:
    """Return the bytes of one message. Raises `ValueError` when it is too big."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(body)} bytes exceeds {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next message's bytes; None at the end of the connection."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_FRAME_BYTES:
            raise BrokenFrame(f"a frame of {length} bytes exceeds {MAX_FRAME_BYTES}")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


# -- what the process says on its standard output, one JSON object a line ----------------------


class Stage(msgspec.Struct, frozen=True, tag="stage"):
    """Where the start-up is."""

    name: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model answered one token and the socket listens."""

    seconds: float


class StartFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine cannot run as it was asked to; `message` is for the operator."""

    message: str


StartUp = Stage | Ready | StartFailed
