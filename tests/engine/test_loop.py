"""A model that fails on a step costs the turns of that step, never the engine."""

import asyncio
import random
import threading

import msgspec
import pytest

from engine.api import (
    EngineCode,
    Message,
    Turn,
    TurnCancelled,
    TurnDelta,
    TurnDone,
    TurnFailed,
    TurnStarted,
)
from engine.config import EngineConfig
from engine.kv.context import KVShape
from engine.loop import Loop
from engine.policy import Pace
from engine.prompter import Prompter


def ask(text, turn, session):
    messages = (Message(role="user", text=text),)
    return Turn(id=turn, session=session, tenant="c", messages=messages, max_new_tokens=4)


async def events_of(engine, turn):
    return [event async for event in engine.submit(turn)]


async def test_E2_E68_a_model_that_raises_fails_its_turns_and_answers_the_next(
    tiny, tokenizer, make_engine
):
    """Stands for a kernel that refuses one input: the network itself raises on one token."""
    poison = tokenizer.encode("🎉", add_special_tokens=False)[-1]

    def refuse(module, args, kwargs):
        if poison in kwargs["input_ids"]:
            raise RuntimeError("could not create a primitive")

    tiny.backend.model.register_forward_pre_hook(refuse, with_kwargs=True)
    async with make_engine(tiny) as engine:
        failed = await events_of(engine, ask("🎉", "t1", "s1"))
        assert isinstance(failed[-1], TurnFailed) and failed[-1].code is EngineCode.INTERNAL
        assert "primitive" not in failed[-1].message
        assert (await engine.health()).ready
        assert isinstance((await events_of(engine, ask("ok?", "t2", "s1")))[-1], TurnDone)


async def test_one_turn_id_runs_once(tiny, make_engine):
    async with make_engine(tiny) as engine:
        both = await asyncio.gather(
            events_of(engine, ask("A?", "t", "s1")), events_of(engine, ask("B?", "t", "s2"))
        )
    assert sorted(type(events[-1]).__name__ for events in both) == ["TurnDone", "TurnFailed"]


async def test_E75_counters_add_up(tiny, make_engine):
    async with make_engine(tiny) as engine:
        done = (await events_of(engine, ask("A?", "t1", "s1")))[-1]
        again = (await events_of(engine, ask("A?", "t2", "s1")))[-1]
        stats = await engine.stats()
    counters = stats.counters
    assert counters["tokens_generated"] == 8
    prompts = done.prompt_tokens + again.prompt_tokens
    assert counters["tokens_cached"] + counters["tokens_prefilled"] == prompts
    assert stats.gauges["turns_running"] == stats.gauges["turns_waiting"] == 0


def test_a_listener_that_raises_costs_its_own_turn_only(tiny):
    loop = Loop(EngineConfig(model="tiny", dtype="fp32", delta_interval_s=0.0), tiny)
    ended = {"bad": threading.Event(), "good": threading.Event()}
    last = {}

    def listen(name):
        def emit(event):
            if name == "bad" and isinstance(event, TurnDelta):
                raise ValueError("nobody understands this")
            last[name] = event
            if isinstance(event, TurnDone | TurnFailed):
                ended[name].set()

        return emit

    loop.start()
    try:
        for name in ("bad", "good"):
            turn = msgspec.structs.replace(ask("A?", name, name), max_new_tokens=20)
            loop.submit(turn, listen(name))
        assert all(event.wait(10) for event in ended.values())
    finally:
        loop.stop()
    assert isinstance(last["bad"], TurnFailed) and isinstance(last["good"], TurnDone)


def at_second_layer(tiny, act):
    """Call `act` whenever a step comes to the second of the model's layers."""
    layer = tiny.backend.model.model.layers[1]

    def pass_on(module, args):
        act()

    layer.register_forward_pre_hook(pass_on)


async def test_a_long_prompt_that_is_cancelled_is_not_computed_to_its_end(tiny, make_engine):
    async with make_engine(tiny) as engine:
        at_second_layer(tiny, lambda: engine._loop.cancel("t"))
        last = (await events_of(engine, ask("Is it high? " * 50, "t", "s")))[-1]
        counters = (await engine.stats()).counters
    assert isinstance(last, TurnCancelled)
    assert counters["steps_abandoned"] == 1 and "steps" not in counters


@pytest.mark.parametrize("kind", ["background", "image"])
async def test_a_step_that_gives_way_to_a_question_changes_no_answer(tiny, make_engine, kind):
    asked = msgspec.structs.replace(ask("Is it high?", "first", "s1"), kind=kind, max_new_tokens=40)
    async with make_engine(tiny) as engine:
        alone = (await events_of(engine, asked))[-1]
    answers = asyncio.Queue()
    here = asyncio.get_running_loop()
    async with make_engine(tiny) as engine:
        steps = []

        def interrupt():
            steps.append(1)
            if len(steps) == 20:
                engine._loop.submit(
                    ask("And?", "asked", "s2"),
                    lambda event: here.call_soon_threadsafe(answers.put_nowait, event),
                )

        at_second_layer(tiny, interrupt)
        beside = (await events_of(engine, asked))[-1]
        while not isinstance(last := await answers.get(), TurnDone):
            assert not isinstance(last, TurnFailed)
        counters = (await engine.stats()).counters
    assert counters["steps_abandoned"] == 1
    assert isinstance(beside, TurnDone) and beside.token_ids == alone.token_ids


async def test_a_machine_without_the_memory_that_was_allowed_costs_the_turn_alone(
    tiny, make_engine, monkeypatch
):
    async with make_engine(tiny) as engine:
        await events_of(engine, ask("A?", "t1", "s1"))
        kept = (await engine.stats()).gauges["kv_bytes"]
        with monkeypatch.context() as short:

            def allocate(shape, capacity):
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

            short.setattr(KVShape, "allocate", allocate)
            failed = (await events_of(engine, ask("B?", "t2", "s2")))[-1]
        assert isinstance(failed, TurnFailed) and failed.code is EngineCode.INTERNAL
        assert "memory" not in failed.message
        assert (await engine.stats()).gauges["kv_bytes"] == kept
        assert isinstance((await events_of(engine, ask("B?", "t3", "s2")))[-1], TurnDone)


async def test_many_random_turns_cancels_and_drops_leave_nothing_behind(tiny, make_engine):
    """Little memory and few slots, so that turns wait, evict each other and are cut anywhere."""
    chance = random.Random(11)
    budget = 6 * 256 * tiny.backend.shape.token_bytes
    last = []

    async def talk(engine, session):
        messages = []
        for n in range(8):
            messages.append(Message(role="user", text="Is it high? " * chance.randint(1, 3)))
            turn = Turn(
                id=f"{session}-{n}",
                session=session,
                tenant="c",
                messages=tuple(messages),
                max_new_tokens=chance.randint(1, 24),
                temperature=1.0,
            )
            cut, shown = chance.randint(0, 40), ""
            async for event in engine.submit(turn):
                if isinstance(event, TurnDelta):
                    shown += event.text
                    cut -= 1
                    if not cut:
                        await engine.cancel(turn.id)
            last.append(event)
            messages.append(Message(role="assistant", text=shown, turn=turn.id))
            if chance.random() < 0.2:
                await engine.drop(session)

    async with make_engine(tiny, kv_budget_bytes=budget, max_batch=3) as engine:
        async with asyncio.timeout(60):
            await asyncio.gather(*(talk(engine, f"s{n}") for n in range(9)))
        stats = await engine.stats()
    assert len(last) == 72
    assert {type(event) for event in last} <= {TurnDone, TurnCancelled, TurnFailed}
    # A talk may outgrow the tiny context; nothing else may fail.
    failed = [event for event in last if isinstance(event, TurnFailed)]
    assert {event.code for event in failed} <= {EngineCode.CONTEXT_FULL}
    assert stats.gauges["turns_running"] == stats.gauges["turns_waiting"] == 0
    assert stats.gauges["kv_bytes"] <= budget


async def test_E60_a_prompt_under_way_is_cancelled_within_one_step(tiny, make_engine, monkeypatch):
    monkeypatch.setattr(Pace, "window", lambda self, decoding, step_tokens: 1)
    turn = msgspec.structs.replace(ask("Is it high? " * 60, "t", "s"), max_new_tokens=50)
    async with make_engine(tiny) as engine:
        stream = engine.submit(turn)
        await anext(stream)
        steps = (await engine.stats()).counters.get("steps", 0)
        await engine.cancel("t")
        rest = [event async for event in stream]
        after = (await engine.stats()).counters
    assert isinstance(rest[-1], TurnCancelled) and not rest[-1].token_ids
    assert after.get("steps", 0) <= steps + 1 and after.get("tokens_prefilled", 0) < 200


async def test_E62_turns_that_come_together_are_computed_together(tiny, make_engine):
    turns = [ask(f"Is {n} high?", f"t{n}", f"s{n}") for n in range(16)]
    async with make_engine(tiny) as engine:
        answers = await asyncio.gather(*(events_of(engine, turn) for turn in turns))
        steps = (await engine.stats()).counters["steps"]
    assert all(isinstance(events[-1], TurnDone) for events in answers)
    # Four tokens each: one after the other they would take 64 steps.
    assert steps <= 24


async def test_E70_E71_turns_that_end_in_their_first_step_hear_all_of_it(tiny, make_engine):
    turns = [
        msgspec.structs.replace(ask("A?", f"t{n}", f"s{n}"), max_new_tokens=1) for n in range(40)
    ]
    async with make_engine(tiny) as engine:
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*(events_of(engine, turn) for turn in turns))
    for events, turn in zip(answers, turns, strict=True):
        assert isinstance(events[0], TurnStarted) and isinstance(events[-1], TurnDone)
        assert {event.turn for event in events} == {turn.id}
        assert "".join(e.text for e in events if isinstance(e, TurnDelta)) == events[-1].text


async def test_E48_every_byte_that_is_kept_is_told_beside_its_budget(tiny, make_engine):
    settings = {"kv_budget_bytes": 1 << 20, "kv_ram_bytes": 1 << 19, "answer_cache_bytes": 1 << 10}
    async with make_engine(tiny, **settings) as engine:
        for n in range(20):
            await events_of(engine, ask(f"Is {n} high? " * 9, f"t{n}", f"s{n}"))
        gauges = (await engine.stats()).gauges
    assert 0 < gauges["kv_bytes"] <= gauges["kv_budget_bytes"] == 1 << 20
    assert 0 < gauges["kv_ram_bytes"] <= gauges["kv_ram_budget_bytes"] == 1 << 19
    assert 0 < gauges["answer_cache_bytes"] <= 1 << 10


async def test_a_prompt_that_cannot_be_laid_out_fails_alone(tiny, make_engine, monkeypatch):
    def refuse(self, prompt):
        raise ValueError("no positions for this")

    async with make_engine(tiny) as engine:
        with monkeypatch.context() as broken:
            broken.setattr(Prompter, "layout", refuse)
            failed = (await events_of(engine, ask("A?", "t1", "s1")))[-1]
        assert isinstance(failed, TurnFailed) and failed.code is EngineCode.INTERNAL
        assert isinstance((await events_of(engine, ask("A?", "t2", "s1")))[-1], TurnDone)
