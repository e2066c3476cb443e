"""Notes cross the bus whole; what is not understood is lost, as any note may be."""

from __future__ import annotations

import msgspec
import pytest

from protocol.shapes import Actor
from protocol.state import Person
from server import notes

MEI = Person(participant="mei", name="Mei")


@pytest.mark.parametrize(
    "note",
    [
        notes.Here((MEI,)),
        notes.Gone("mei"),
        notes.WhoIsHere(),
        notes.Sat("mei", "s", 1.5),
        notes.Shown("k", b"{}"),
        notes.EndTurn("t", "person", Actor(id="mei", name="Mei")),
        notes.HandOver("a"),
    ],
    ids=lambda note: type(note).__name__,
)
def test_a_note_is_read_as_it_was_written(note):
    assert notes.decode(notes.encode(note)) == note


@pytest.mark.parametrize("raw", [b"", b"torn", msgspec.msgpack.encode({"type": "Newer"})])
def test_what_is_not_understood_is_lost_in_silence(raw):
    assert notes.decode(raw) is None
