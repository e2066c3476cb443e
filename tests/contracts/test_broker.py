"""The contract of a broker, run for every implementation."""

from __future__ import annotations

import asyncio

import pytest

from server.background import Background
from server.broker_memory import MemoryBroker
from server.broker_redis import RedisBroker
from server.log_redis import RedisLog
from server.redis_link import RedisLink
from tests.support.ears import Ears


@pytest.fixture(params=["memory", "redis"])
async def brokers(request):
    """Two processes of the same kind; in memory they can only be alone."""
    if request.param == "memory":
        yield [MemoryBroker(), MemoryBroker()]
        return
    url, background = request.getfixturevalue("redis").url, Background()
    links = [RedisLink(url), RedisLink(url)]
    made = [RedisBroker(link, f"{n:016}", background) for n, link in enumerate(links)]
    for broker in made:
        broker.start()
    async with asyncio.timeout(5):
        while not all(broker.is_up for broker in made):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    yield made
    for broker, link in zip(made, links, strict=True):
        await broker.close()
        await link.close()
    await background.close()


async def test_a_broker_is_up_when_it_hears(brokers):
    assert all(broker.is_up for broker in brokers)


async def test_R15_nobody_hears_their_own_notes(brokers):
    one, _ = brokers
    mine = Ears()
    await one.subscribe("r", mine)
    one.tell("r", b"1")
    await asyncio.sleep(0.2)
    assert mine.notes == []


async def test_nothing_is_heard_after_unsubscribe(brokers):
    one, two = brokers
    ears = Ears()
    await one.subscribe("r", ears)
    await one.unsubscribe("r")
    await one.unsubscribe("r")
    two.tell("r", b"1")
    await asyncio.sleep(0.2)
    assert ears.notes == []


@pytest.fixture
async def pair(redis, background):
    links = [RedisLink(redis.url), RedisLink(redis.url)]
    made = [RedisBroker(link, f"{n:016}", background) for n, link in enumerate(links)]
    for broker in made:
        broker.start()
    yield made, [RedisLog(link) for link in links]
    for broker, link in zip(made, links, strict=True):
        await broker.close()
        await link.close()


async def test_R21_what_one_process_says_the_others_hear_in_order(pair):
    (one, two), _ = pair
    ears, elsewhere = Ears(), Ears()
    await two.subscribe("r", ears)
    await two.subscribe("s", elsewhere)
    await ears.until(lambda: ears.gaps)
    for number in range(100):
        one.tell("r", str(number).encode())
    await ears.until(lambda: len(ears.notes) == 100)
    assert ears.notes == [("0" * 16, str(number).encode()) for number in range(100)]
    assert elsewhere.notes == []
