"""A session that had to give way comes back bit for bit, from RAM, from disk, after a restart."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest
import torch

from engine.api import EngineCode, Message, Turn, TurnCancelled, TurnDone, TurnFailed
from engine.kv.disk import open_unbuffered
from engine.models.backend import Backend
from engine.models.loaded import LoadedModel
from tests.engine.conftest import tiny_model

LONG = "The fasting glucose of the patient is 11.2 mmol/L. " * 3


def asked(turn, messages, session="s", **settings):
    return Turn(id=turn, session=session, tenant="clinic", messages=tuple(messages), **settings)


def said(text):
    return Message(role="user", text=text)


async def events_of(engine, turn):
    return [event async for event in engine.submit(turn)]


async def talk(engine, session="s", turns=1, messages=None, first=0):
    """Several turns of one session; returns their last events and the conversation."""
    messages = list(messages or [])
    events = []
    for n in range(first, first + turns):
        messages.append(said(f"{LONG} Is value {n} high?"))
        got = await events_of(engine, asked(f"{session}-{n}", messages, session, max_new_tokens=20))
        assert isinstance(got[-1], TurnDone), got[-1]
        events.append(got[-1])
        messages.append(Message(role="assistant", text=got[-1].text, turn=f"{session}-{n}"))
    return events, messages


async def push_out(engine, times=6):
    """Others talk until nobody else's KV is live any more."""
    for n in range(times):
        await talk(engine, f"other-{next(_NAMES)}-{n}")


_NAMES = itertools.count()


def live_of(engine, session="s"):
    context = engine._loop._sessions._sessions[f"clinic\0{session}"].context
    return list(context.tokens), context.read(0, context.length).clone()


def counters_of(stats, *names):
    return tuple(stats.counters.get(name, 0) for name in names)


@pytest.fixture
def small(tiny):
    """Room for two sessions of two grains."""
    return {"kv_budget_bytes": 5 * 256 * tiny.backend.shape.token_bytes}


@pytest.fixture
def kept(small, tmp_path):
    """The same, with a disk."""
    return {**small, "kv_folder": str(tmp_path / "kv"), "kv_disk_floor_bytes": 0}


async def test_E20_from_ram_bits_and_answers_are_those_of_a_session_that_stayed(
    tiny, make_engine, small
):
    async with make_engine(tiny) as engine:
        stayed, _ = await talk(engine, turns=3)
        expected = live_of(engine)
    async with make_engine(tiny, **small) as engine:
        before, messages = await talk(engine, turns=2)
        await push_out(engine)
        assert not engine._loop._sessions._sessions["clinic\0s"].context.capacity
        after, _ = await talk(engine, turns=1, messages=messages, first=2)
        restored = live_of(engine)
        stats = await engine.stats()
    assert [e.token_ids for e in before + after] == [e.token_ids for e in stayed]
    assert [e.cached_tokens for e in before + after] == [e.cached_tokens for e in stayed]
    assert after[0].cached_tokens > 0 and stats.counters["kv_ram_hits"] >= 1
    assert restored[0] == expected[0] and torch.equal(restored[1], expected[1])


async def test_E20_E25_after_a_restart_bits_and_answers_are_those_of_a_session_that_stayed(
    tiny, make_engine, kept, tokenizer
):
    """E13: without its length and positions the restored session would go on somewhere else."""
    async with make_engine(tiny) as engine:
        stayed, _ = await talk(engine, turns=3)
        expected = live_of(engine)
    async with make_engine(tiny, **kept) as engine:
        before, messages = await talk(engine, turns=2)
    again = LoadedModel.assemble(
        "tiny", Backend(tiny_model("llama", len(tokenizer))), tokenizer, None
    )
    async with make_engine(again, **kept) as engine:
        after, _ = await talk(engine, turns=1, messages=messages, first=2)
        restored = live_of(engine)
        stats = await engine.stats()
    engine._loop._sessions.check_integrity()
    assert [e.token_ids for e in before + after] == [e.token_ids for e in stayed]
    assert after[0].cached_tokens == stayed[2].cached_tokens > 0
    assert counters_of(stats, "kv_disk_hits", "kv_disk_tokens") == (1, after[0].cached_tokens)
    assert restored[0] == expected[0] and torch.equal(restored[1], expected[1])


async def test_E7_other_weights_take_nothing_of_what_lies_on_disk(
    tiny, make_engine, kept, tokenizer
):
    async with make_engine(tiny, **kept) as engine:
        _, messages = await talk(engine, turns=1)
    changed = tiny_model("llama", len(tokenizer))
    with torch.no_grad():
        changed.model.layers[0].mlp.up_proj.weight[0, 0] += 1e-3
    other = LoadedModel.assemble("tiny", Backend(changed), tokenizer, None)
    async with make_engine(other, **kept) as engine:
        after, _ = await talk(engine, turns=1, messages=messages, first=1)
        stats = await engine.stats()
    assert after[0].cached_tokens == 0
    assert counters_of(stats, "kv_disk_hits", "kv_files_foreign") == (0, 1)


async def test_E12_another_tenant_gets_nothing_from_ram_or_disk(tiny, make_engine, kept):
    async with make_engine(tiny, **kept) as engine:
        _, messages = await talk(engine)
    async with make_engine(tiny, **kept) as engine:
        theirs = Turn(id="x", session="s", tenant="other", messages=(*messages, said("?")))
        assert (await events_of(engine, theirs))[0].cached_tokens == 0
        mine, _ = await talk(engine, messages=messages, first=1)
        assert mine[0].cached_tokens > 0


async def test_a_dropped_session_leaves_no_file_and_no_copy(tiny, make_engine, kept, tmp_path):
    async with make_engine(tiny, **kept) as engine:
        _, messages = await talk(engine)
        await talk(engine, "stays")
        await push_out(engine)
        await engine.drop("s")
        names = {path.name for path in (tmp_path / "kv").glob("*.kv")}
        after, _ = await talk(engine, messages=messages, first=1)
        assert after[0].cached_tokens == 0
    async with make_engine(tiny, **kept) as engine:
        await engine.drop("s")
        left = {path.name for path in (tmp_path / "kv").glob("*.kv")}
    assert len(left - names) == 0 and names


async def test_a_session_dropped_while_it_answers_leaves_no_file(tiny, make_engine, kept, tmp_path):
    async with make_engine(tiny, **kept) as engine:
        _, messages = await talk(engine)
        stream = engine.submit(asked("t", [*messages, said("And?")], max_new_tokens=300))
        await anext(stream)
        await engine.drop("s")
        assert not list((tmp_path / "kv").glob("*.kv"))
        await engine.cancel("t")
        assert isinstance([event async for event in stream][-1], TurnCancelled)
        # Whatever the end of the turn began with is done when this is.
        await engine.drop("s")
    assert not list((tmp_path / "kv").glob("*.kv*"))


async def test_E23_a_refused_turn_leaves_the_session_as_it_was(tiny, make_engine, kept):
    async with make_engine(tiny, **kept) as engine:
        _, messages = await talk(engine)
    async with make_engine(tiny, **kept) as engine:
        refused = (await events_of(engine, asked("t", [said("x" * 40_000)])))[-1]
        assert isinstance(refused, TurnFailed) and refused.code is EngineCode.CONTEXT_FULL
        after, _ = await talk(engine, messages=messages, first=1)
    assert after[0].cached_tokens > 0
    engine._loop._sessions.check_integrity()


async def test_E39_E40_turns_cancelled_at_any_moment_of_a_restore_hold_nothing(
    tiny, make_engine, kept
):
    async with make_engine(tiny, **kept) as engine:
        stayed, messages = await talk(engine)
    for delay in range(8):
        async with make_engine(tiny, **kept) as engine:
            turn = asked("t", [*messages, said("And?")], max_new_tokens=50)
            task = asyncio.create_task(events_of(engine, turn))
            for _ in range(delay):
                await asyncio.sleep(0.0005)
            await engine.cancel("t")
            await engine.cancel("t")
            last = (await task)[-1]
            assert isinstance(last, TurnCancelled | TurnDone)
        engine._loop._sessions.check_integrity()


async def test_prefetch_brings_a_session_to_ram_before_its_question(tiny, make_engine, kept):
    async with make_engine(tiny, **kept) as engine:
        _, messages = await talk(engine)
    async with make_engine(tiny, **kept) as engine:
        await engine.prefetch("s")
        for _ in range(2000):
            if (await engine.stats()).gauges["kv_ram_sessions"]:
                break
            await asyncio.sleep(0.005)
        assert (await engine.stats()).gauges["kv_ram_sessions"] == 1
        after, _ = await talk(engine, messages=messages, first=1)
    assert after[0].cached_tokens > 0


async def test_E22_a_session_without_tokens_is_nothing_to_keep(tiny, make_engine, kept, tmp_path):
    async with make_engine(tiny, **kept) as engine:
        await engine.prefetch("nobody")
        await engine.drop("nobody")
        turn = asked("t", [said("x" * 40_000)])
        assert isinstance((await events_of(engine, turn))[-1], TurnFailed)
        await engine.drop("nobody")
    assert not list((tmp_path / "kv").glob("*.kv*"))


async def test_E35_E45_many_sessions_through_little_memory_say_what_they_would_have_said(
    tiny, make_engine, kept
):
    """Live memory for two, RAM for a few, the rest on disk; all ask at once, three times."""
    names = [f"s{n}" for n in range(10)]
    async with make_engine(tiny, kv_ram_bytes=0) as engine:
        expected = {name: (await talk(engine, name, turns=3))[0] for name in names}
    ram = 6 * 512 * tiny.backend.shape.token_bytes
    async with make_engine(tiny, **kept, kv_ram_bytes=ram, max_batch=2) as engine:
        async with asyncio.timeout(120):
            got = await asyncio.gather(*(talk(engine, name, turns=3) for name in names))
        stats = await engine.stats()
    for name, (events, _) in zip(names, got, strict=True):
        assert [e.token_ids for e in events] == [e.token_ids for e in expected[name]], name
    assert stats.counters["kv_evictions"] > 5
    assert counters_of(stats, "kv_integrity_failures", "kv_faults") == (0, 0)
    assert stats.gauges["kv_ram_bytes"] <= ram
    engine._loop._sessions.check_integrity()


async def test_E39_a_disk_that_hangs_costs_a_turn_its_patience_and_no_more(
    tiny, make_engine, kept, monkeypatch
):
    async with make_engine(tiny, **kept) as engine:
        _, messages = await talk(engine, turns=2)
    monkeypatch.setattr("engine.sessions.READ_DEADLINE_S", 0.2)
    let_go = threading.Event()
    async with make_engine(tiny, **kept) as engine:
        disk = engine._loop._sessions._store._disk
        await engine.drop("nobody")

        def hang(path, mode):
            assert let_go.wait(30)
            return open_unbuffered(path, mode)

        disk._open_file = hang
        async with asyncio.timeout(10):
            after, _ = await talk(engine, messages=messages, first=2)
        assert after[0].cached_tokens == 0
        assert (await engine.stats()).counters["kv_reads_given_up"] == 1
        let_go.set()
    engine._loop._sessions.check_integrity()


async def test_names_that_could_stand_for_two_sessions_are_refused(tiny, make_engine):
    async with make_engine(tiny) as engine:
        turn = Turn(id="t", session="b\0c", tenant="a", messages=(said("?"),))
        assert isinstance((await events_of(engine, turn))[-1], TurnFailed)
