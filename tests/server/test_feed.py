"""Joining, falling behind and coming back: every event once, in order, whatever the moment."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from protocol.events import CommentAdded
from protocol.shapes import Actor
from protocol.state import Snapshot
from server.feed import Feed
from server.outbox import Outbox

MEI = Actor(id="mei", name="Mei")


class Reader:
    """What a socket would do: takes frames off an outbox at its own pace."""

    def __init__(self, room, room_log, clock, *, budget=4_000, resume_events=10_000) -> None:
        self.outbox = Outbox(budget)
        self.snapshots: list[Snapshot] = []
        self.seqs: list[int] = []
        self.feed = Feed(
            room,
            room_log,
            self.outbox,
            wake=lambda: None,
            announce=self.snapshots.append,
            resume_events=resume_events,
            page_bytes=budget // 2,
            clock=clock,
        )
        self._room = room

    async def join(self, number: int, epoch: str | None = None, seq: int = 0) -> bool:
        def enter(state) -> bool:
            is_resumed = self.feed.start(state, epoch, seq)
            if not is_resumed:
                self.feed.start(state, state.epoch, state.seq)
                self.snapshots.append(state.snapshot())
            self._room.members[number] = self.feed
            return is_resumed

        return await self._room.between(enter)

    def take(self) -> None:
        frame = self.outbox.take(0.0)
        self.outbox.sent()
        if frame is not None:
            parsed = json.loads(frame)
            self.seqs += [
                each["seq"] for each in (parsed if isinstance(parsed, list) else [parsed])
            ]
            self.feed.drained()


async def say(room, count: int, size: int = 50) -> None:
    await room.record(
        *(CommentAdded(at=1, actor=MEI, id=f"c{n}", text="x" * size) for n in range(count))
    )


@pytest.mark.parametrize("seed", range(8))
async def test_every_reader_gets_every_event_once_and_in_order(room, room_log, clock, seed):
    chance = random.Random(seed)
    await say(room, 30)
    epoch = (await room_log.head("ward-7")).epoch
    readers: list[tuple[Reader, int, asyncio.Task]] = []

    async def come(number: int) -> None:
        reader = Reader(room, room_log, clock, budget=chance.randint(500, 5_000))
        start = chance.randint(0, 30)
        assert await reader.join(number, epoch, start)
        task = asyncio.create_task(reader.feed.catch_up_until_cancelled())
        readers.append((reader, start, task))

    async def talk() -> None:
        for _ in range(25):
            await say(room, chance.randint(1, 8), chance.randint(10, 400))

    async def read() -> None:
        while True:
            for reader, _, _ in readers:
                if chance.random() < 0.5:
                    reader.take()
            await asyncio.sleep(0)

    reading = asyncio.create_task(read())
    await asyncio.gather(talk(), *(come(number) for number in range(4)))
    async with asyncio.timeout(10):
        while any(r.seqs[-1:] != [room.head.seq] for r, _, _ in readers):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    for task in (reading, *(task for _, _, task in readers)):
        task.cancel()
    for reader, start, _ in readers:
        assert reader.seqs == list(range(start + 1, room.head.seq + 1))
        assert not reader.snapshots


async def test_R23_a_position_of_another_epoch_gets_a_snapshot(room, room_log, clock):
    await say(room, 3)
    reader = Reader(room, room_log, clock)
    assert not await reader.join(1, "another", 2)
    assert reader.snapshots[0].seq == 3
    await say(room, 1)
    reader.take()
    assert reader.seqs == [4]


async def test_a_position_ahead_of_the_room_gets_a_snapshot(room, room_log, clock):
    await say(room, 3)
    epoch = (await room_log.head("ward-7")).epoch
    assert not await Reader(room, room_log, clock).join(1, epoch, 4)


async def test_who_missed_too_much_gets_a_snapshot_and_goes_on(room, room_log, clock):
    reader = Reader(room, room_log, clock, budget=1_000, resume_events=20)
    epoch = (await room_log.head("ward-7")).epoch
    assert await reader.join(1, epoch, 0)
    catching = asyncio.create_task(reader.feed.catch_up_until_cancelled())
    await say(room, 50)
    async with asyncio.timeout(5):
        while not reader.snapshots:
            reader.take()
            await asyncio.sleep(0.005)
    await say(room, 2)
    reader.take()
    assert reader.seqs[-2:] == [51, 52]
    catching.cancel()


async def test_a_client_that_takes_nothing_gets_no_second_page_and_no_second_snapshot(
    room, room_log, clock
):
    reader = Reader(room, room_log, clock, budget=1_000, resume_events=20)
    await reader.join(1)
    catching = asyncio.create_task(reader.feed.catch_up_until_cancelled())
    await say(room, 1)
    assert reader.outbox.take(0.0) is not None
    for _ in range(20):
        await say(room, 30)
    assert reader.outbox.is_behind and reader.outbox.is_empty
    assert len(reader.snapshots) == 1
    reader.outbox.sent()
    reader.feed.drained()
    async with asyncio.timeout(5):
        while len(reader.snapshots) < 2:
            reader.take()
            await asyncio.sleep(0.005)
    assert reader.snapshots[-1].seq == room.head.seq
    catching.cancel()


async def test_the_head_that_a_heartbeat_tells_is_one_the_client_can_have(room, room_log, clock):
    reader = Reader(room, room_log, clock)
    await reader.join(1, (await room_log.head("ward-7")).epoch, 0)
    await say(room, 2)
    assert reader.feed.head == 0
    reader.take()
    assert reader.feed.head == 2
