"""The log in Redis where it differs: answers that are lost, bytes that are too many for the bus."""

from __future__ import annotations

import asyncio

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from server.broker_redis import RedisBroker
from server.log import History, LogUnavailable
from server.log_redis import RedisLog
from server.redis_link import RedisLink
from tests.contracts.test_log import draft
from tests.support.ears import Ears


@pytest.fixture
async def link(redis):
    made = RedisLink(redis.url)
    yield made
    await made.close()


async def test_an_append_whose_answer_was_lost_is_not_done_twice(link):
    log = RedisLog(link)
    done = log._script
    lost = [True, True, False]

    async def losing(**arguments):
        answer = await done(**arguments)
        if lost.pop(0):
            raise RedisConnectionError("the connection was lost after the script ran")
        return answer

    log._script = losing
    nameless = [draft("", participant=""), draft("", participant="")]
    appended = await log.append("r", nameless, await log.head("r"))
    assert [each.event.seq for each in appended] == [1, 2]
    assert (await log.head("r")).seq == 2


async def test_an_answer_lost_while_others_go_on_is_still_known(link):
    log, other = RedisLog(link), RedisLog(link)
    done = log._script
    is_lost = [True]

    async def losing(**arguments):
        answer = await done(**arguments)
        if is_lost:
            is_lost.clear()
            await other.append("r", [draft("b")])
            raise RedisConnectionError("lost")
        return answer

    log._script = losing
    (mine,) = await log.append("r", [draft("", participant="")], await log.head("r"))
    history = await log.since("r", mine.event.epoch, 0, 10)
    assert isinstance(history, History)
    assert [each.event.op_id for each in history.events] == ["", "b"]


async def test_R7_what_is_too_long_for_the_bus_is_announced_and_read(link, background):
    broker, ears, log = RedisBroker(link, "0" * 16, background), Ears(), RedisLog(link)
    broker.start()
    await broker.subscribe("r", ears)
    await ears.until(lambda: ears.gaps)
    before = ears.gaps
    (short,) = await log.append("r", [draft("a")])
    await ears.until(lambda: ears.frames)
    assert ears.frames == [short.frame]
    await log.append("r", [draft("b", "x" * 70_000)])
    await ears.until(lambda: ears.gaps > before)
    assert len(ears.frames) == 1
    await broker.close()


async def test_while_redis_is_away_nothing_is_read(background):
    link = RedisLink("redis://127.0.0.1:1")
    log = RedisLog(link)
    for call in (log.head("r"), log.probe(), log.rooms(), log.find("r", [("mei", "a")])):
        with pytest.raises(LogUnavailable):
            await call
    await link.close()


@pytest.mark.fault
async def test_R10_an_append_under_way_when_redis_dies_is_done_once_when_it_is_back(own_redis):
    link = RedisLink(own_redis.url)
    log = RedisLog(link)
    head = await log.head("r")
    own_redis.kill()
    waiting = asyncio.create_task(log.append("r", [draft("", participant="")], head))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await asyncio.get_running_loop().run_in_executor(None, own_redis.start)
    (appended,) = await waiting
    assert appended.event.seq == 1 and (await log.head("r")).seq == 1
    await link.close()
