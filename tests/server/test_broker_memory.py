"""What only the memory broker has to prove; its contract is in `tests/contracts`."""

from __future__ import annotations

from server.broker_memory import MemoryBroker


async def test_a_newer_subscription_of_a_room_is_the_one_that_hears():
    broker, heard = MemoryBroker(), []
    await broker.subscribe("r", lambda room, frame: heard.append("old"), lambda room: None)
    await broker.subscribe("r", lambda room, frame: heard.append("new"), lambda room: None)
    await broker.publish("r", [b"1"])
    await broker.close()
    await broker.publish("r", [b"2"])
    assert heard == ["new"]
