"""What a listener gets, and what passes without a log."""

import pytest

from protocol import messages as ms
from protocol.events import CommentAdded, Event, TurnCancelled
from protocol.joining import Disconnected, FellBehind
from protocol.shapes import Actor
from protocol.state import Person
from protocol.surroundings import MAX_WAITING_EVENTS, Reader, Surroundings

MEI = Actor(id="p-1", name="Mei")
CANCELLED = TurnCancelled(at=1, actor=MEI, turn="t-1")


async def left(holds):
    if not holds():
        raise Disconnected("left the room", 1000)


async def lost(holds):
    raise Disconnected("replaced", 4409)


async def test_a_reader_gets_only_the_kinds_that_it_asked_for():
    reader = Reader(left, (TurnCancelled,))
    reader.offer(CommentAdded(at=1, actor=MEI, id="c", text=""))
    reader.offer(CANCELLED)
    reader.offer(ms.Goaway(retry_after=1.0))
    assert [event async for event in reader] == [CANCELLED]


async def test_a_reader_hears_of_an_end_that_was_not_ours():
    with pytest.raises(Disconnected):
        await anext(Reader(lost, (Event,)))


async def test_a_reader_keeps_10_000_events_and_is_cut_off_at_the_next():
    reader = Reader(left, (Event,))
    for _ in range(MAX_WAITING_EVENTS):
        reader.offer(CANCELLED)
    assert await anext(reader) == CANCELLED
    reader.offer(CANCELLED)
    reader.offer(CANCELLED)
    with pytest.raises(FellBehind):
        await anext(reader)


def test_people_come_move_and_leave():
    around = Surroundings()
    around.take(ms.PresenceState(person=Person(participant="p-1", name="Mei")))
    around.take(ms.PresenceState(person=Person(participant="p-1", name="Mei", x=3.0)))
    assert around.people["p-1"].x == 3.0
    around.take(ms.PresenceGone(participant="p-1"))
    around.take(ms.PresenceGone(participant="p-1"))
    assert around.people == {}


def test_a_newer_ticket_replaces_the_old_one():
    around = Surroundings()
    around.take(ms.Access(media=ms.MediaAccess(base="/a", ticket="new", expires_at=1)))
    assert around.media.ticket == "new"
