"""What the processes of one room tell each other besides events: lossy, kept by no log."""

from __future__ import annotations

from typing import Literal

import msgspec

from protocol.shapes import Actor
from protocol.state import Person

End = Literal["person", "barge_in", "interrupted"]


class Note(msgspec.Struct, frozen=True, tag=True):
    """Something said to the other processes of a room."""


class Here(Note, frozen=True):
    """These people are connected to the sender; it says so again before the lease ends."""

    people: tuple[Person, ...]


class Gone(Note, frozen=True):
    """Somebody is no longer connected to the sender."""

    participant: str


class WhoIsHere(Note, frozen=True):
    """The sender has just loaded the room and asks for a `Here`."""


class Sat(Note, frozen=True):
    """The sender has a newer socket of this session, since `at` (Unix seconds)."""

    participant: str
    session: str
    at: float


class Shown(Note, frozen=True):
    """A lossy message to everybody in the room."""

    key: str
    frame: bytes


class EndTurn(Note, frozen=True):
    """Somebody asks whoever answers this turn to end it."""

    turn: str
    end: End
    by: Actor


class HandOver(Note, frozen=True):
    """The sender goes on with an upload: whoever has it open lets go of it."""

    asset: str


AnyNote = Here | Gone | WhoIsHere | Sat | Shown | EndTurn | HandOver

_decoder = msgspec.msgpack.Decoder(AnyNote)


def encode(note: Note) -> bytes:
    """Write a note as bytes."""
    return msgspec.msgpack.encode(note)


def decode(raw: bytes) -> AnyNote | None:
    """Read a note; None for one of another version, which is lost like any other."""
    try:
        return _decoder.decode(raw)
    except msgspec.DecodeError:
        return None
