"""The engine in this process: exactness, cancellation, reuse, refusals."""

from __future__ import annotations

import asyncio

import pytest
import torch

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
from engine.engine import PROBE_KEPT_S

LENGTH = 32
# Long enough an answer of the embedded model to be cut in its middle.
QUESTION = "Explain in detail what a high glucose value means for a patient."


def ask(text, turn="t", session="s", **settings):
    messages = settings.pop("messages", (Message(role="user", text=text),))
    return Turn(id=turn, session=session, tenant="clinic", messages=messages, **settings)


async def events_of(engine, turn):
    return [event async for event in engine.submit(turn)]


def generated(reference, tokenizer, prompt, length=LENGTH):
    """What `generate` alone makes of a prompt, and the smallest margin of its choices."""
    ids = torch.tensor([tokenizer.encode(prompt, add_special_tokens=False)])
    out = reference.generate(
        ids,
        max_new_tokens=length,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        eos_token_id=None,
    )
    top = torch.stack(out.logits).topk(2, dim=-1).values[:, 0]
    return tuple(out.sequences[0, ids.shape[1] :].tolist()), float((top[:, 0] - top[:, 1]).min())


@pytest.mark.parametrize("concurrent", [1, 2, 8])
async def test_greedy_fp32_equals_generate_for_concurrent_sessions(
    tiny_pair, tokenizer, make_engine, concurrent
):
    reference, model = tiny_pair
    turns = [
        ask(f"Is glucose {n} high? " * (n + 1), f"t{n}", f"s{n}", max_new_tokens=LENGTH)
        for n in range(concurrent)
    ]
    async with make_engine(model, max_step_tokens=48) as engine:
        answers = await asyncio.gather(*(events_of(engine, turn) for turn in turns))
    distinct = set()
    for events in answers:
        expected, margin = generated(reference, tokenizer, events[0].prompt)
        assert margin > 1e-3, "a near tie would prove nothing"
        assert events[-1].token_ids == expected
        distinct |= set(expected)
    assert len(distinct) >= 20


async def test_E19_E75_E76_E78_a_second_turn_equals_generate_and_computes_only_what_is_new(
    tiny_pair, tokenizer, make_engine
):
    reference, model = tiny_pair
    async with make_engine(model) as engine:
        first = await events_of(engine, ask("What is high?", "t1", max_new_tokens=20))
        talk = (
            Message(role="user", text="What is high?"),
            Message(role="assistant", text=first[-1].text, turn="t1"),
            Message(role="user", text="And low?"),
        )
        second = await events_of(engine, ask("", "t2", messages=talk, max_new_tokens=20))
    prompt_ids = tokenizer.encode(first[0].prompt, add_special_tokens=False)
    # The last token made was never fed to the model, so its KV is not there yet.
    assert second[0].cached_tokens == len(prompt_ids) + 20 - 1
    ids = [*prompt_ids, *first[-1].token_ids]
    rest = tokenizer.encode(
        "<|im_end|>\n<|im_start|>user\nAnd low?<|im_end|>\n<|im_start|>assistant\n",
        add_special_tokens=False,
    )
    out = reference.generate(
        torch.tensor([ids + rest]), max_new_tokens=20, do_sample=False, eos_token_id=None
    )
    assert second[-1].token_ids == tuple(out[0, len(ids + rest) :].tolist())
    assert second[-1].prompt_tokens == len(ids + rest)


async def test_deltas_rise_and_add_up_to_the_text_of_the_tokens(tiny, tokenizer, make_engine):
    async with make_engine(tiny) as engine:
        events = await events_of(engine, ask("Is it high?", max_new_tokens=60, temperature=1.0))
    deltas = [event for event in events if isinstance(event, TurnDelta)]
    done = events[-1]
    assert isinstance(events[0], TurnStarted) and isinstance(done, TurnDone)
    assert [delta.offset for delta in deltas] == sorted({delta.offset for delta in deltas})
    assert "".join(delta.text for delta in deltas) == done.text
    assert done.text == tokenizer.decode(done.token_ids, skip_special_tokens=True)


async def test_sampling_depends_on_the_seed_and_not_on_batch_mates(tiny, make_engine):
    alone = ask("Is it high?", "a", "s1", max_new_tokens=30, temperature=1.0, seed=5)
    other = ask("Is it high?", "b", "s2", max_new_tokens=30, temperature=1.0, seed=6)
    async with make_engine(tiny) as engine:
        first = await events_of(engine, alone)
        again, mate = await asyncio.gather(events_of(engine, alone), events_of(engine, other))
    assert first[-1].token_ids == again[-1].token_ids != mate[-1].token_ids


async def test_a_cancelled_turn_frees_its_slot_within_one_step(tiny, make_engine):
    """The only slot is given to the next turn as soon as the first is cancelled."""
    async with make_engine(tiny, max_batch=1) as engine:
        stream = engine.submit(ask("Is it high?", "t1", "s1", max_new_tokens=900))
        async for event in stream:
            if isinstance(event, TurnDelta):
                break
        steps = (await engine.stats()).counters["steps"]
        assert await engine.cancel("t1")
        rest = [event async for event in stream]
        assert isinstance(rest[-1], TurnCancelled)
        assert sum(isinstance(event, TurnCancelled) for event in rest) == 1
        assert (await engine.stats()).counters["steps"] <= steps + 2
        after = await events_of(engine, ask("Is it?", "t2", "s2", max_new_tokens=2))
        assert isinstance(after[-1], TurnDone)


async def test_L10_cancelling_what_does_not_run_is_answered_no(tiny, make_engine):
    async with make_engine(tiny) as engine:
        assert not await engine.cancel("nothing")


async def test_L05_L08_cancelling_at_any_moment_gives_exactly_one_last_event(tiny, make_engine):
    async with make_engine(tiny) as engine:
        for delay in range(12):
            turn = ask("Is it high?", f"t{delay}", max_new_tokens=6)
            task = asyncio.create_task(events_of(engine, turn))
            for _ in range(delay):
                await asyncio.sleep(0.001)
            await engine.cancel(turn.id)
            events = await task
            last = [e for e in events if isinstance(e, TurnDone | TurnCancelled | TurnFailed)]
            assert last == events[-1:]


async def test_L03_closing_the_iterator_cancels_the_turn(tiny, make_engine):
    async with make_engine(tiny, max_batch=1) as engine:
        stream = engine.submit(ask("Is it high?", "t1", "s1", max_new_tokens=900))
        await anext(stream)
        await stream.aclose()
        after = await events_of(engine, ask("Is it?", "t2", "s2", max_new_tokens=2))
        assert isinstance(after[-1], TurnDone)
        assert (await engine.stats()).counters["turns_cancelled"] == 1


async def interrupted_and_resumed(engine, length, cut):
    """Ask twice: once in one go, once cut after some deltas and continued from what was shown."""
    whole = await events_of(engine, ask(QUESTION, "w", "s1", max_new_tokens=length))
    shown = ""
    stream = engine.submit(ask(QUESTION, "i", "s2", max_new_tokens=length))
    deltas = 0
    async for event in stream:
        if isinstance(event, TurnDelta):
            shown += event.text
            deltas += 1
            if deltas == cut:
                await engine.cancel("i")
    assert len(shown) < len(whole[-1].text), "the turn was to be cut before its end"
    talk = (
        Message(role="user", text=QUESTION),
        Message(role="assistant", text=shown, turn="i"),
    )
    left = length - len(event.token_ids)
    rest = await events_of(engine, ask("", "c", "s2", messages=talk, max_new_tokens=left))
    return whole[-1], event, shown, rest


@pytest.mark.parametrize("cut", [1, 5, 17])
async def test_E43_interrupted_and_resumed_equals_uninterrupted(tiny, make_engine, cut):
    async with make_engine(tiny) as engine:
        whole, cancelled, shown, rest = await interrupted_and_resumed(engine, 200, cut)
    assert shown + rest[-1].text == whole.text
    assert cancelled.token_ids + rest[-1].token_ids == whole.token_ids
    assert rest[0].cached_tokens == rest[0].prompt_tokens - 1


@pytest.mark.model
async def test_in_bf16_interrupted_and_resumed_equals_uninterrupted(embedded_model, make_engine):
    from engine.config import EngineConfig
    from engine.models.loaded import LoadedModel

    model = LoadedModel.load(EngineConfig(model=str(embedded_model)))
    async with make_engine(model, dtype="bf16") as engine:
        whole, cancelled, shown, rest = await interrupted_and_resumed(engine, 48, 11)
    assert shown + rest[-1].text == whole.text
    assert cancelled.token_ids + rest[-1].token_ids == whole.token_ids
    assert rest[0].cached_tokens == rest[0].prompt_tokens - 1


async def test_L07_the_next_turn_holds_exactly_what_was_delivered(tiny, make_engine, tokenizer):
    """Text that never reached anybody is not in the context of the next question."""
    async with make_engine(tiny) as engine:
        first = await events_of(engine, ask("Is it high?", "t1", max_new_tokens=30))
        shown = first[-1].text[:17]
        talk = (
            Message(role="user", text="Is it high?"),
            Message(role="assistant", text=shown, turn="t1"),
            Message(role="user", text="Go on."),
        )
        second = await events_of(engine, ask("", "t2", messages=talk, max_new_tokens=2))
    expected = f"assistant\n{shown}<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>"
    assert expected in second[0].prompt


async def test_turns_of_one_session_run_one_after_the_other(tiny, make_engine):
    order = []

    async def follow(engine, turn):
        async for event in engine.submit(turn):
            order.append((turn.id, type(event)))

    async with make_engine(tiny) as engine:
        await asyncio.gather(
            follow(engine, ask("One?", "t1", max_new_tokens=12)),
            follow(engine, ask("Two?", "t2", max_new_tokens=3)),
        )
    assert order.index(("t1", TurnDone)) < order.index(("t2", TurnStarted))


async def test_E72_a_prompt_beyond_the_context_is_refused_and_the_next_turn_works(
    tiny, make_engine
):
    async with make_engine(tiny) as engine:
        failed = await events_of(engine, ask("high " * 3000, "t1"))
        assert [type(event) for event in failed] == [TurnFailed]
        assert failed[0].code is EngineCode.CONTEXT_FULL
        assert isinstance((await events_of(engine, ask("High?", "t2")))[-1], TurnDone)


async def test_an_answer_ends_with_length_where_the_context_ends(tiny, make_engine):
    async with make_engine(tiny, max_context=400) as engine:
        events = await events_of(engine, ask("Hi", max_new_tokens=500))
    done = events[-1]
    assert done.finish == "length"
    assert done.prompt_tokens + len(done.token_ids) == 400


async def test_too_many_waiting_turns_are_refused_as_overloaded(tiny, make_engine):
    turns = [ask("High?", f"t{n}", f"s{n}", max_new_tokens=100) for n in range(8)]
    async with make_engine(tiny, max_batch=2, max_waiting=3) as engine:
        answers = await asyncio.gather(*(events_of(engine, turn) for turn in turns))
    last = [events[-1] for events in answers]
    refused = [event for event in last if isinstance(event, TurnFailed)]
    assert {event.code for event in refused} == {EngineCode.OVERLOADED}
    assert sum(isinstance(event, TurnDone) for event in last) == 5


@pytest.mark.parametrize(
    "bad",
    [
        {"messages": ()},
        {"max_new_tokens": 0},
        {"max_new_tokens": 10**9},
        {"temperature": float("nan")},
        {"temperature": -1.0},
        {"top_p": 0.0},
    ],
)
async def test_E2_a_bad_turn_fails_alone_and_the_engine_goes_on(tiny, make_engine, bad):
    async with make_engine(tiny) as engine:
        failed = await events_of(engine, ask("High?", "t1", **bad))
        assert [type(event) for event in failed] == [TurnFailed]
        assert (await engine.health()).ready
        good = await events_of(engine, ask("High?", "t2", max_new_tokens=2))
        assert isinstance(good[-1], TurnDone)


async def test_a_language_the_model_does_not_know_is_refused_with_the_setting_that_helps(
    tokenizer, tiny, make_engine
):
    from engine.models.loaded import LoadedModel

    english = LoadedModel.assemble("tiny", tiny.backend, tokenizer, ("en",))
    async with make_engine(english) as engine:
        failed = await events_of(engine, ask("血糖为什么升高？", "t1"))
        assert failed[-1].code is EngineCode.LANGUAGE_UNSUPPORTED
        assert "--model" in failed[-1].message
        done = await events_of(engine, ask("What is 糖化血红蛋白?", "t2", max_new_tokens=2))
        assert isinstance(done[-1], TurnDone)


async def test_L01_kv_of_idle_sessions_is_evicted_under_pressure_and_computed_again(
    tiny, make_engine
):
    budget = 3 * 256 * tiny.backend.shape.token_bytes
    async with make_engine(tiny, kv_budget_bytes=budget, kv_ram_bytes=0) as engine:
        first = await events_of(engine, ask("Is it high?", "a", "s0", max_new_tokens=8))
        for n in range(1, 5):
            await events_of(engine, ask("Is it high?", f"t{n}", f"s{n}", max_new_tokens=8))
            assert (await engine.stats()).gauges["kv_bytes"] <= budget
        again = await events_of(engine, ask("Is it high?", "b", "s0", max_new_tokens=8))
    assert again[0].cached_tokens == 0
    assert again[-1].token_ids == first[-1].token_ids


async def test_a_dropped_session_is_forgotten(tiny, make_engine):
    async with make_engine(tiny) as engine:
        await events_of(engine, ask("Is it high?", "a", max_new_tokens=8))
        await engine.drop("s")
        again = await events_of(engine, ask("Is it high?", "b", max_new_tokens=8))
        assert again[0].cached_tokens == 0
        kept = await events_of(engine, ask("Is it high?", "c", max_new_tokens=8))
        assert kept[0].cached_tokens > 0


async def test_E12_sessions_of_two_tenants_share_nothing(tiny, make_engine):
    mine = ask("Is it high?", "a", max_new_tokens=8)
    theirs = Turn(id="b", session="s", tenant="other", messages=mine.messages, max_new_tokens=8)
    async with make_engine(tiny) as engine:
        await events_of(engine, mine)
        assert (await events_of(engine, theirs))[0].cached_tokens == 0


async def test_stopping_ends_every_turn_with_engine_lost(tiny, make_engine):
    async with make_engine(tiny) as engine:
        stream = engine.submit(ask("Is it high?", max_new_tokens=900))
        await anext(stream)
        await engine.stop()
        rest = [event async for event in stream]
    assert isinstance(rest[-1], TurnFailed) and rest[-1].code is EngineCode.ENGINE_LOST


async def test_everybody_may_ask_for_health_and_the_model_answers_now_and_then(
    tiny, make_engine, monkeypatch
):
    runs = []
    run = tiny.backend.run
    monkeypatch.setattr(tiny.backend, "run", lambda segments: runs.append(1) or run(segments))
    async with make_engine(tiny) as engine:
        assert all([(await engine.health()).ready for _ in range(20)])
        assert len(runs) == 1
        # Long enough later it is asked again, and a model that fails is not believed.
        engine._answered_at -= PROBE_KEPT_S
        monkeypatch.setattr(tiny.backend, "answers", lambda: False)
        assert not (await engine.health()).ready
        assert not (await engine.health()).ready
