"""Rooms are loaded once, kept while they are needed, and let go without losing anybody."""

from __future__ import annotations

import asyncio

import pytest

from protocol.events import CommentAdded
from protocol.shapes import Actor
from server.broker_memory import MemoryBroker
from server.hub import Hub

MEI = Actor(id="mei", name="Mei")


class Seat:
    def __init__(self) -> None:
        self.times_replaced = 0

    def replaced(self) -> None:
        self.times_replaced += 1

    def go_away(self, retry_after_s: float) -> None:
        """Not asked for here."""

    def part(self) -> None:
        """Not asked for here."""


@pytest.fixture
async def hub(room_log, background, clock):
    made = Hub(
        room_log,
        MemoryBroker(),
        background,
        clock,
        clock,
        snapshot_events=100,
        blip_s=0.0,
        idle_room_s=10.0,
    )
    background.spawn(made.sweep_until_cancelled(), "sweep")
    return made


async def unloaded(hub: Hub) -> None:
    async with asyncio.timeout(5):
        while len(hub):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_who_comes_at_the_same_time_gets_the_same_room_mended_once(hub):
    mended: list[str] = []
    hub.on_load = lambda room, state: mended.append(room.name)
    places = await asyncio.gather(*(hub.enter("r") for _ in range(10)))
    assert len({id(place.room) for place in places}) == 1
    assert mended == ["r"] and places[0].holds == 10


async def test_nobody_is_let_in_before_what_mends_the_room_is_numbered(hub):
    event = CommentAdded(at=1, actor=MEI, op_id="mend", id="mended", text="x")

    def mend(room, state) -> None:
        from server.proposals import Proposal

        room.propose(Proposal(lambda state: event, lambda answer: None, op_id="mend"))

    hub.on_load = mend
    place = await hub.enter("r")
    assert await place.room.between(lambda state: list(state.comments)) == ["mended"]


async def test_an_idle_room_is_let_go_and_comes_back_as_it_was(hub, clock):
    place = await hub.enter("r")
    await place.room.record(CommentAdded(at=1, actor=MEI, id="c", text="x"))
    before = await place.room.between(lambda state: state.hash())
    hub.leave(place)
    await asyncio.sleep(0.6)
    assert len(hub) == 1
    clock.now += 11
    await unloaded(hub)
    again = await hub.enter("r")
    assert again.room is not place.room
    assert await again.room.between(lambda state: state.hash()) == before


async def test_R19_who_comes_while_a_room_is_let_go_hears_the_new_one(hub, clock):
    place = await hub.enter("r")
    hub.leave(place)
    clock.now += 11
    await unloaded(hub)
    again = await hub.enter("r")
    await asyncio.sleep(0.6)
    await again.room.record(CommentAdded(at=1, actor=MEI, id="c", text="x"))
    assert again.room.head.seq == 1, "the broker still brings what is published"


async def test_a_room_that_work_needs_is_kept(hub, clock):
    place = await hub.enter("r")
    clock.now += 1_000
    await asyncio.sleep(0.6)
    assert len(hub) == 1
    hub.leave(place)


async def test_a_newer_socket_takes_the_seat_and_the_older_one_cannot_free_it(hub):
    older, newer, key = Seat(), Seat(), ("r", "mei", "s")
    hub.sit(key, older)
    hub.sit(key, older)
    hub.sit(key, newer)
    hub.rise(key, older)
    hub.sit(key, Seat())
    assert (older.times_replaced, newer.times_replaced) == (1, 1)
