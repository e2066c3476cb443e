"""Leases in Redis: one owner, renewed while it lives, over soon after it died."""

from __future__ import annotations

import asyncio

import pytest

from server.background import Background
from server.leases_redis import RedisLeases
from server.log import LogUnavailable
from server.redis_link import RedisLink

LENGTH_S = 0.4


@pytest.fixture
async def nodes(redis):
    background, links = Background(), [RedisLink(redis.url), RedisLink(redis.url)]
    made = [RedisLeases(link, f"n{n}", background, LENGTH_S) for n, link in enumerate(links)]
    yield made
    await background.close()
    for link in links:
        await link.close()


async def free(leases: RedisLeases) -> None:
    async with asyncio.timeout(5):
        while await leases.is_taken("r", "turn:t"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_of_two_only_one_has_a_lease_and_it_is_free_when_given_back(nodes):
    one, two = nodes
    assert await one.take("r", "turn:t") and await one.take("r", "turn:t")
    assert not await two.take("r", "turn:t")
    await two.let_go("r", "turn:t")
    assert await two.is_taken("r", "turn:t")
    await one.let_go("r", "turn:t")
    assert await two.take("r", "turn:t")


async def test_a_lease_is_kept_as_long_as_its_owner_lives_and_not_much_longer(nodes):
    one, two = nodes
    one.start()
    await one.take("r", "turn:t")
    await asyncio.sleep(3 * LENGTH_S)
    assert not await two.take("r", "turn:t")
    one._task.cancel()
    began = asyncio.get_running_loop().time()
    await free(two)
    assert asyncio.get_running_loop().time() - began < 3 * LENGTH_S


async def test_who_closes_gives_back_everything(nodes):
    one, two = nodes
    await one.take("r", "turn:t")
    await one.close()
    assert not await two.is_taken("r", "turn:t")


async def test_without_redis_no_lease_is_taken(background):
    link = RedisLink("redis://127.0.0.1:1")
    leases = RedisLeases(link, "n", background)
    with pytest.raises(LogUnavailable):
        await leases.take("r", "turn:t")
    await leases.let_go("r", "turn:t")
    await link.close()
