"""Items in groups: nothing lost, nothing late, the source closed."""

from __future__ import annotations

import asyncio

import pytest

from server.gather import MAX_WAITING, Gather


async def collect(gather: Gather) -> list[list[int]]:
    groups = [group async for group in gather.groups()]
    await gather.close()
    return groups


async def burst(count: int, gap_s: float = 0.0):
    for number in range(count):
        yield number
        await asyncio.sleep(gap_s)


async def test_the_first_item_goes_at_once_and_the_rest_in_windows():
    groups = await collect(Gather(burst(20, 0.005), window_s=0.04))
    assert [item for group in groups for item in group] == list(range(20))
    assert groups[0] == [0]
    assert 2 <= len(groups) <= 8


async def test_the_end_does_not_wait_for_its_window():
    loop = asyncio.get_running_loop()
    started = loop.time()
    groups = await collect(Gather(burst(3), window_s=5))
    assert [item for group in groups for item in group] == [0, 1, 2]
    assert loop.time() - started < 1


async def test_a_source_that_is_faster_than_its_reader_waits():
    made = 0

    async def endless():
        nonlocal made
        while True:
            made += 1
            yield made
            await asyncio.sleep(0)

    gather = Gather(endless(), window_s=0)
    groups = gather.groups()
    await anext(groups)
    await asyncio.sleep(0.1)
    assert made <= 2 * MAX_WAITING
    await groups.aclose()
    await gather.close()


async def test_stop_ends_it_now_and_close_closes_the_source():
    closed = asyncio.Event()

    async def slow():
        try:
            yield 1
            await asyncio.sleep(60)
            yield 2
        finally:
            closed.set()

    gather = Gather(slow(), window_s=60)
    seen = []
    async for group in gather.groups():
        seen += group
        asyncio.get_running_loop().call_soon(gather.stop)
    await gather.close()
    assert seen == [1] and closed.is_set()


async def test_a_fault_of_the_source_is_raised_after_what_came_before():
    async def faulty():
        yield 1
        raise ValueError("ours")

    gather = Gather(faulty(), window_s=0)
    seen = []
    with pytest.raises(ValueError):
        async for group in gather.groups():
            seen += group
    await gather.close()
    assert seen == [1]
