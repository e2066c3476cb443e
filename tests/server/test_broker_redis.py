"""The bus: it says when it is down, and who missed something is told."""

from __future__ import annotations

import asyncio

import pytest

from server.broker import MAX_PAYLOAD_BYTES
from server.broker_redis import MAX_NOTES, RedisBroker
from server.redis_link import RedisLink
from tests.support.ears import Ears


async def until(is_so) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def broker_of(server, background, **options) -> tuple[RedisLink, RedisBroker]:
    link = RedisLink(server.url)
    broker = RedisBroker(link, "0" * 16, background, **options)
    broker.start()
    return link, broker


@pytest.mark.fault
async def test_R3_after_a_restart_every_room_is_subscribed_again_and_reads_its_gap(
    own_redis, background
):
    link, broker = await broker_of(own_redis, background)
    rooms = {"r": Ears(), "s": Ears()}
    for name, ears in rooms.items():
        await broker.subscribe(name, ears)
    await until(lambda: broker.is_up and all(ears.gaps for ears in rooms.values()))
    own_redis.kill()
    await until(lambda: not broker.is_up)
    await asyncio.get_running_loop().run_in_executor(None, own_redis.start)
    await until(lambda: broker.is_up and all(ears.gaps > 1 for ears in rooms.values()))
    await broker.close()
    await link.close()


@pytest.mark.fault
async def test_a_bus_that_is_silent_is_down_although_its_socket_is_open(own_redis, background):
    link, broker = await broker_of(own_redis, background, beat_s=0.05, silent_s=0.3)
    ears = Ears()
    await broker.subscribe("r", ears)
    await until(lambda: broker.is_up and ears.gaps)
    own_redis.stall(stalls=True)
    await until(lambda: not broker.is_up)
    own_redis.stall(stalls=False)
    await until(lambda: broker.is_up and ears.gaps > 1)
    await broker.close()
    await link.close()


async def test_R6_a_quiet_room_stays_subscribed(redis, background):
    link, broker = await broker_of(redis, background, beat_s=0.05, silent_s=0.5)
    ears = Ears()
    await broker.subscribe("r", ears)
    await until(lambda: broker.is_up and ears.gaps)
    before = ears.gaps
    await asyncio.sleep(1.2)
    assert broker.is_up and ears.gaps == before
    await broker.close()
    await link.close()


async def test_R10_of_notes_that_wait_for_the_bus_the_oldest_are_dropped_and_counted(background):
    broker = RedisBroker(RedisLink("redis://127.0.0.1:1"), "0" * 16, background)
    for _ in range(MAX_NOTES + 5):
        broker.tell("r", b"x")
    broker.tell("r", b"x" * MAX_PAYLOAD_BYTES)
    assert broker.notes_dropped == 6


async def test_a_subscription_does_not_wait_for_a_bus_that_is_down(background):
    link = RedisLink("redis://127.0.0.1:1")
    broker = RedisBroker(link, "0" * 16, background)
    broker.start()
    async with asyncio.timeout(2):
        await broker.subscribe("r", Ears())
        await broker.unsubscribe("r")
    assert not broker.is_up
    await broker.close()
    await link.close()
