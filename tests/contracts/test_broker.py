"""The contract of a broker, run for every implementation."""

from __future__ import annotations

import pytest

from server.broker_memory import MemoryBroker


@pytest.fixture(params=["memory"])
async def broker(request):
    made = MemoryBroker()
    yield made
    await made.close()


async def test_frames_arrive_in_the_order_of_publishing_once_each(broker):
    heard: list[tuple[str, bytes]] = []
    await broker.subscribe("r", lambda room, frame: heard.append((room, frame)), lambda room: None)
    await broker.publish("r", [b"1", b"2"])
    await broker.publish("r", [b"3"])
    assert heard == [("r", b"1"), ("r", b"2"), ("r", b"3")]


async def test_a_room_hears_only_itself(broker):
    heard: list[bytes] = []
    await broker.subscribe("r", lambda room, frame: heard.append(frame), lambda room: None)
    await broker.publish("s", [b"1"])
    assert heard == []


async def test_nothing_is_heard_after_unsubscribe(broker):
    heard: list[bytes] = []
    await broker.subscribe("r", lambda room, frame: heard.append(frame), lambda room: None)
    await broker.unsubscribe("r")
    await broker.unsubscribe("r")
    await broker.publish("r", [b"1"])
    assert heard == []


async def test_R15_who_answers_what_it_hears_with_nothing_makes_no_loop(broker):
    heard: list[bytes] = []
    await broker.subscribe("r", lambda room, frame: heard.append(frame), lambda room: None)
    await broker.publish("r", [b"1"])
    assert heard == [b"1"]
