"""After much work everything is as it was: memory, counts, and the loop that serves."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time

import psutil

from engine.api import TurnCancelled, TurnDelta, TurnDone
from tests.engine.conftest import question

TURNS = int(os.environ.get("CONSILIUM_SOAK_TURNS", "240"))
LAG_S = float(os.environ.get("CONSILIUM_SOAK_LAG_SECONDS", "6"))
AT_ONCE = 12
# Allocators keep some of what they were given; a leak of one context a turn would be 200 KB each.
GROWTH_BYTES = 24 << 20


async def turns(engine, numbers, chance: random.Random) -> int:
    """Run turns of a few sessions, a third of them cut short; return how many were."""
    cut = 0
    for number in numbers:
        asked = question(
            "Is it high? " * chance.randint(1, 12),
            f"t{number}",
            f"s{chance.randrange(40)}",
            max_new_tokens=chance.randint(1, 40),
            kind=chance.choice(["text", "text", "image"]),
        )
        is_cut, left = chance.random() < 0.3, chance.randint(0, 6)
        async for event in engine.submit(asked):
            if is_cut and isinstance(event, TurnDelta):
                left -= 1
                if left <= 0:
                    await engine.cancel(asked.id)
        assert isinstance(event, TurnDone | TurnCancelled)
        cut += isinstance(event, TurnCancelled)
    return cut


async def run(engine, first: int, count: int) -> int:
    groups = [range(first + n, first + count, AT_ONCE) for n in range(AT_ONCE)]
    return sum(await asyncio.gather(*(turns(engine, g, random.Random(g.start)) for g in groups)))


def rss() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


async def test_after_thousands_of_turns_memory_and_counts_are_back(tiny, make_engine, tmp_path):
    settings = {
        "max_batch": 6,
        "kv_budget_bytes": 8 * 512 * tiny.backend.shape.token_bytes,
        "kv_ram_bytes": 8 << 20,
        "kv_folder": str(tmp_path / "kv"),
        "kv_disk_bytes": 32 << 20,
        "kv_disk_floor_bytes": 0,
        "answer_cache_bytes": 1 << 20,
    }
    async with make_engine(tiny, **settings) as engine:
        await run(engine, 0, TURNS)
        before = rss()
        cut = await run(engine, TURNS, TURNS)
        grown = rss() - before
        for session in range(40):
            await engine.drop(f"s{session}")
        gauges = (await engine.stats()).gauges
        loop = engine._loop
    assert cut > TURNS // 10
    assert grown < GROWTH_BYTES, f"{grown / 1e6:.0f} MB more after {TURNS} turns"
    held = ("sessions", "kv_bytes", "kv_ram_bytes", "kv_disk_bytes", "turns_running")
    assert {name: gauges[name] for name in held} == dict.fromkeys(held, 0.0)
    assert gauges["answer_cache_bytes"] == gauges["turns_waiting"] == 0
    assert not list((tmp_path / "kv").glob("*.kv*"))
    loop._sessions.check_integrity()


async def test_opening_and_dropping_sessions_leaves_nothing(tiny, make_engine):
    cycles = max(TURNS // 2, 100)
    async with make_engine(tiny) as engine:
        for n in range(cycles):
            await turns(engine, [n], random.Random(n))
            if n % 10 == 9:
                for session in range(40):
                    await engine.drop(f"s{session}")
        gauges = (await engine.stats()).gauges
    assert gauges["sessions"] == gauges["kv_bytes"] == gauges["kv_ram_bytes"] == 0


async def test_the_loop_that_serves_is_not_held_up_by_full_load(tiny, make_engine):
    lags: list[float] = []

    async def load(engine, number: int) -> None:
        for n in range(10_000):
            turn = question("Is it high? " * 9, f"{number}-{n}", f"s{number}", max_new_tokens=60)
            async for _ in engine.submit(turn):
                pass

    async with make_engine(tiny, delta_interval_s=0.03) as engine:
        busy = [asyncio.create_task(load(engine, n)) for n in range(AT_ONCE)]
        end = time.monotonic() + LAG_S
        while time.monotonic() < end:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append(time.monotonic() - before - 0.01)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
    assert sorted(lags)[int(0.99 * len(lags))] < 0.02
