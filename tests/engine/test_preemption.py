"""Turns that give way and go on, turns that nobody asked for, turns that come too late."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from engine.api import EngineCode, TurnCancelled, TurnDelta, TurnDone, TurnFailed, TurnStarted
from engine.models.backend import Backend
from tests.engine.conftest import answer, question

LONG = 300


async def until_it_speaks(stream):
    async for event in stream:
        if isinstance(event, TurnDelta):
            return event
    raise AssertionError("the turn ended")


async def rest_of(stream):
    return [event async for event in stream]


async def test_a_text_question_displaces_a_picture_that_goes_on_as_if_nothing_had_been(
    tiny, make_engine
):
    async with make_engine(tiny, max_batch=1) as engine:
        alone = await answer(engine, question("Is it?", "t0", "s0", max_new_tokens=LONG))
        stream = engine.submit(question("Is it?", "t1", "s1", max_new_tokens=LONG, kind="image"))
        first = await until_it_speaks(stream)
        text = await answer(engine, question("And this?", "t2", "s2", max_new_tokens=4))
        rest = await rest_of(stream)
        stats = await engine.stats()
    assert isinstance(text[-1], TurnDone)
    assert rest[-1].token_ids == alone[-1].token_ids
    assert rest[-1].timings["total"] > text[-1].timings["total"]
    deltas = [first, *(event for event in rest if isinstance(event, TurnDelta))]
    assert "".join(delta.text for delta in deltas) == alone[-1].text
    assert not any(isinstance(event, TurnStarted) for event in rest)
    assert stats.counters["turns_preempted"] == 1
    prompts = alone[-1].prompt_tokens + rest[-1].prompt_tokens + text[-1].prompt_tokens
    # Of what the displaced turn had, only the token that was not yet fed is computed.
    assert stats.counters["tokens_prefilled"] <= prompts + 1


async def test_in_bf16_a_displaced_turn_says_what_it_would_have_said(tiny, tokenizer, make_engine):
    """Restored, not computed again: the bits of bf16 depend on how they were computed."""
    bf16 = replace(tiny, backend=Backend(tiny.backend.model.bfloat16()))
    async with make_engine(bf16, max_batch=1, dtype="bf16") as engine:
        alone = await answer(engine, question("Is it?", "t0", "s0", max_new_tokens=LONG))
        stream = engine.submit(question("Is it?", "t1", "s1", max_new_tokens=LONG, kind="video"))
        await until_it_speaks(stream)
        for n in range(4):
            await answer(engine, question("And?", f"x{n}", f"x{n}", max_new_tokens=3))
        rest = await rest_of(stream)
        assert (await engine.stats()).counters["turns_preempted"] >= 1
    assert rest[-1].token_ids == alone[-1].token_ids


async def test_without_room_for_its_bits_a_turn_is_not_displaced(tiny, make_engine):
    async with make_engine(tiny, max_batch=1, kv_ram_bytes=0) as engine:
        stream = engine.submit(question("Is it?", "t1", "s1", max_new_tokens=LONG, kind="image"))
        await until_it_speaks(stream)
        text = await answer(engine, question("And this?", "t2", "s2", max_new_tokens=4))
        assert isinstance(text[-1], TurnDone)
        assert (await engine.stats()).counters.get("turns_preempted", 0) == 0
        assert isinstance((await rest_of(stream))[-1], TurnDone)


@pytest.mark.parametrize("ends_by", ["cancel", "drop", "close"])
async def test_a_displaced_turn_that_ends_meanwhile_leaves_nothing_behind(
    tiny, make_engine, ends_by
):
    async with make_engine(tiny, max_batch=1) as engine:
        stream = engine.submit(question("Is it?", "t1", "s1", max_new_tokens=LONG, kind="image"))
        await until_it_speaks(stream)
        holder = engine.submit(question("And?", "t2", "s2", max_new_tokens=LONG))
        await until_it_speaks(holder)
        if ends_by == "close":
            await stream.aclose()
        elif ends_by == "drop":
            await engine.drop("s1")
            assert await engine.cancel("t1")
        else:
            assert await engine.cancel("t1")
            assert isinstance((await rest_of(stream))[-1], TurnCancelled)
        assert isinstance((await rest_of(holder))[-1], TurnDone)
        again = await answer(engine, question("Is it?", "t3", "s1", max_new_tokens=4))
        assert isinstance(again[-1], TurnDone)
        if ends_by == "drop":
            assert again[-1].cached_tokens == 0
        loop = engine._loop
    loop._sessions.check_integrity()


async def test_what_nobody_asked_for_waits_for_everybody_who_asks(tiny, make_engine):
    async with make_engine(tiny, max_batch=2) as engine:
        idle = engine.submit(question("Is it?", "b", "s1", max_new_tokens=200, kind="background"))
        await until_it_speaks(idle)
        asked = [question("And?", f"t{n}", f"x{n}", max_new_tokens=20) for n in range(4)]
        answers = await asyncio.gather(*(answer(engine, turn) for turn in asked))
        assert all(isinstance(events[-1], TurnDone) for events in answers)
        rest = await rest_of(idle)
        assert isinstance(rest[-1], TurnDone) and len(rest[-1].token_ids) == 200


async def test_a_question_ends_what_was_begun_for_its_session_unasked(tiny, make_engine):
    async with make_engine(tiny) as engine:
        idle = engine.submit(question("Is it?", "b", "s1", max_new_tokens=900, kind="background"))
        await until_it_speaks(idle)
        done = (await answer(engine, question("Is it?", "t", "s1", max_new_tokens=5)))[-1]
        assert isinstance((await rest_of(idle))[-1], TurnCancelled)
    assert isinstance(done, TurnDone) and done.cached_tokens == done.prompt_tokens - 1


async def test_a_turn_that_cannot_begin_in_time_says_so_and_costs_nothing(tiny, make_engine):
    async with make_engine(tiny, max_batch=1) as engine:
        holder = engine.submit(question("And?", "t1", "s1", max_new_tokens=900))
        await until_it_speaks(holder)
        late = await answer(engine, question("Is it?", "t2", "s2", deadline_s=0.05))
        assert isinstance(late[-1], TurnFailed) and late[-1].code is EngineCode.OVERLOADED
        assert await engine.cancel("t1")
        await rest_of(holder)
        stats = await engine.stats()
    assert stats.gauges["turns_waiting"] == stats.gauges["queue_seconds"] == 0


async def test_what_nobody_asked_for_stands_still_while_perception_reads(tiny, make_engine):
    async with make_engine(tiny) as engine:
        reading = True
        engine._loop._neighbour.is_reading = lambda: reading
        idle = engine.submit(question("Is it?", "b", "s1", max_new_tokens=50, kind="background"))
        assert isinstance(await anext(idle), TurnStarted)
        await asyncio.sleep(0.2)
        assert (await engine.stats()).counters.get("steps", 0) == 0
        # Whoever asks is answered all the same.
        done = (await answer(engine, question("And?", "t", "s2", max_new_tokens=5)))[-1]
        assert isinstance(done, TurnDone)
        reading = False
        assert isinstance((await rest_of(idle))[-1], TurnDone)
