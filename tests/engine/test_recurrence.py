"""Conversations with a model whose layers sum up: they go back to checkpoints, exactly."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import torch

from engine.api import Message, TurnCancelled, TurnDelta, TurnDone
from engine.kv.checkpoints import QUESTION_TOKENS
from engine.models.backend import Backend
from engine.models.loaded import LoadedModel
from engine.policy import Pace
from engine.prompter import Prompter
from tests.engine.conftest import answer, question, tiny_model

MADE = 16
FIRST = Message(role="user", text="The fasting glucose of the patient is 11.2 mmol/L. Is it high?")


@pytest.fixture
def summing(tokenizer) -> LoadedModel:
    backend = Backend(tiny_model("recurrent", len(tokenizer)))
    return LoadedModel.assemble("tiny", backend, tokenizer, None)


@pytest.fixture
def reference(tokenizer):
    return tiny_model("recurrent", len(tokenizer))


@pytest.fixture
def prompts(monkeypatch) -> dict[str, list[int]]:
    """The tokens of every prompt, by turn."""
    written: dict[str, list[int]] = {}
    write = Prompter.write

    def spy(self, sequence, session):
        prompt = write(self, sequence, session)
        written[sequence.turn.id] = prompt.tokens
        return prompt

    monkeypatch.setattr(Prompter, "write", spy)
    return written


@pytest.fixture
def kept(summing, tmp_path):
    """Room for two live sessions, and a disk."""
    return {
        "kv_budget_bytes": 2 * summing.backend.shape.bytes_of(512),
        "kv_folder": str(tmp_path / "kv"),
        "kv_disk_floor_bytes": 0,
    }


def turn_of(name, messages, session="s", **settings):
    settings = {"max_new_tokens": MADE, **settings}
    return msgspec.structs.replace(
        question("", name, session, **settings), messages=tuple(messages)
    )


def user(text):
    return Message(role="user", text=text)


def said(text, turn):
    return Message(role="assistant", text=text, turn=turn)


def equals_generate(reference, prompt, event):
    out = reference.generate(
        torch.tensor([prompt]),
        max_new_tokens=len(event.token_ids),
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        eos_token_id=None,
    )
    top = torch.stack(out.logits).topk(2, dim=-1).values[:, 0]
    assert float((top[:, 0] - top[:, 1]).min()) > 1e-3, "a near tie would prove nothing"
    return event.token_ids == tuple(out.sequences[0, len(prompt) :].tolist())


def context_of(engine, session="s"):
    return engine._loop._sessions._sessions[f"clinic\0{session}"].context


def live_bits(engine):
    context = context_of(engine)
    kv = context.stores[0][:, :, :, : context.length].clone()
    return list(context.tokens), kv, context.states.live.buffer.clone()


def is_same(one, other):
    return one[0] == other[0] and all(map(torch.equal, one[1:], other[1:]))


async def push_out(engine):
    for n in range(3):
        await answer(engine, turn_of(f"x{n}", [FIRST, said("No.", ""), FIRST], f"other-{n}"))


async def two_turns(engine):
    first = (await answer(engine, turn_of("t1", [FIRST])))[-1]
    messages = [FIRST, said(first.text, "t1"), user("And low?")]
    second = (await answer(engine, turn_of("t2", messages)))[-1]
    return [first, second], [*messages, said(second.text, "t2")]


@pytest.mark.parametrize("where", ["live", "ram", "disk"])
@pytest.mark.parametrize(
    "parts", ["in the answer", "in the question", "before", "nowhere", "again"]
)
async def test_E79_a_conversation_that_parts_anywhere_goes_on_from_the_last_checkpoint(
    summing, reference, make_engine, prompts, kept, where, parts
):
    """Kept are the end of the turn before, one token before the end of the prompt, and the end."""
    async with make_engine(summing, **kept) as engine:
        (first, second), messages = await two_turns(engine)
        if where == "disk":
            await engine.stop()
    again = make_engine(summing, **kept) if where == "disk" else None
    async with again if again else make_engine(summing, **kept) as engine:
        if where != "disk":
            (first, second), messages = await two_turns(engine)
        if where == "ram":
            await push_out(engine)
            assert not context_of(engine).capacity
        length = len(prompts["t2"])
        asked, expected = {
            "in the answer": ([*messages[:3], said("No.", ""), user("?")], length - 1),
            "in the question": ([*messages[:2], user("Or what?")], len(prompts["t1"]) + MADE - 1),
            "before": ([user("Why?")], 0),
            "nowhere": ([*messages, user("?")], length + MADE - 1),
            "again": (messages[:3], length - 1),
        }[parts]
        third = (await answer(engine, turn_of("t3", asked)))[-1]
        hits = (await engine.stats()).counters
    assert third.cached_tokens == expected
    if expected and where != "live":
        assert hits[f"kv_{where}_hits"] == 1
    for name, event in (("t1", first), ("t2", second), ("t3", third)):
        assert equals_generate(reference, prompts[name], event), name
    assert len({token for event in (first, second, third) for token in event.token_ids}) >= 20


async def test_E20_E25_from_ram_and_disk_the_states_are_those_of_a_session_that_stayed(
    summing, make_engine, kept
):
    async with make_engine(summing) as engine:
        _, messages = await two_turns(engine)
        stayed = (await answer(engine, turn_of("t3", [*messages, user("?")])))[-1]
        expected = live_bits(engine)
    async with make_engine(summing, **kept) as engine:
        await two_turns(engine)
        await push_out(engine)
        assert not context_of(engine).capacity
        from_ram = (await answer(engine, turn_of("t3", [*messages, user("?")])))[-1]
        assert is_same(live_bits(engine), expected)
        await engine.drop("s")
        await two_turns(engine)
    async with make_engine(summing, **kept) as engine:
        from_disk = (await answer(engine, turn_of("t3", [*messages, user("?")])))[-1]
        assert is_same(live_bits(engine), expected)
        counters = (await engine.stats()).counters
    engine._loop._sessions.check_integrity()
    assert counters["kv_disk_hits"] == 1 and not counters.get("kv_integrity_failures")
    for event in (from_ram, from_disk):
        assert (event.token_ids, event.cached_tokens) == (stayed.token_ids, stayed.cached_tokens)


@pytest.mark.parametrize("shown", [1, 4, 9])
async def test_of_a_cancelled_turn_exactly_what_was_delivered_is_remembered(
    summing, reference, make_engine, prompts, shown
):
    async with make_engine(summing) as engine:
        text, last = "", None
        stream = engine.submit(turn_of("t1", [FIRST], max_new_tokens=200))
        async for last in stream:
            if isinstance(last, TurnDelta):
                text += last.text
                shown -= 1
                if not shown:
                    await engine.cancel("t1")
        assert isinstance(last, TurnCancelled)
        length = context_of(engine).length
        messages = [FIRST, said(text, "t1"), user("And low?")]
        second = (await answer(engine, turn_of("t2", messages)))[-1]
    # Nothing of the prompt is computed again but its last token, if that.
    assert len(prompts["t1"]) - 1 <= second.cached_tokens <= length
    assert equals_generate(reference, prompts["t2"], second)


async def test_a_turn_cancelled_inside_its_prompt_leaves_what_was_computed(
    summing, reference, make_engine, prompts, monkeypatch
):
    steps = []

    def window(self, decoding, step_tokens):
        steps.append(step_tokens)
        if len(steps) == 5:
            assert engine._loop.cancel("t1")
        return 2

    monkeypatch.setattr(Pace, "window", window)
    async with make_engine(summing) as engine:
        long = [user(FIRST.text * 2)]
        assert isinstance((await answer(engine, turn_of("t1", long)))[-1], TurnCancelled)
        length = context_of(engine).length
        second = (await answer(engine, turn_of("t2", long)))[-1]
    assert 0 < length == second.cached_tokens < 20
    assert equals_generate(reference, prompts["t2"], second)


async def test_in_bf16_a_displaced_turn_says_what_it_would_have_said(
    summing, tokenizer, make_engine
):
    """Restored, not computed again: the bits of bf16 depend on how they were computed."""
    bf16 = replace(summing, backend=Backend(summing.backend.model.bfloat16()))
    async with make_engine(bf16, max_batch=1, dtype="bf16") as engine:
        alone = await answer(engine, turn_of("t0", [FIRST], "s0", max_new_tokens=300))
        stream = engine.submit(turn_of("t1", [FIRST], "s1", max_new_tokens=300, kind="video"))
        async for event in stream:
            if isinstance(event, TurnDelta):
                break
        for n in range(4):
            await answer(engine, turn_of(f"x{n}", [FIRST], f"x{n}", max_new_tokens=3))
        rest = [event async for event in stream]
        assert (await engine.stats()).counters["turns_preempted"] >= 1
    assert isinstance(rest[-1], TurnDone) and rest[-1].token_ids == alone[-1].token_ids


async def test_another_question_about_what_was_read_ahead_computes_little_more_than_itself(
    summing, reference, make_engine, prompts
):
    """What is read while a room rests ends with some question; people ask other ones."""
    sheet = f"{FIRST.text} " * 8
    async with make_engine(summing) as engine:
        ahead = turn_of("t1", [user(f"{sheet}?")], kind="background", max_new_tokens=1)
        await answer(engine, ahead)
        asked = (await answer(engine, turn_of("t2", [user(f"{sheet}Which are low?")])))[-1]
    assert asked.cached_tokens == len(prompts["t1"]) - QUESTION_TOKENS > 200
    assert equals_generate(reference, prompts["t2"], asked)


async def test_a_long_question_that_is_taken_back_leaves_the_turn_before_it(
    summing, reference, make_engine, prompts
):
    async with make_engine(summing) as engine:
        first = (await answer(engine, turn_of("t1", [FIRST])))[-1]
        messages = [FIRST, said(first.text, "t1")]
        await answer(engine, turn_of("t2", [*messages, user("And low? " * 40)]))
        third = (await answer(engine, turn_of("t3", [*messages, user("Why?")])))[-1]
    assert len(prompts["t2"]) - len(prompts["t1"]) > 2 * QUESTION_TOKENS
    assert third.cached_tokens == len(prompts["t1"]) + MADE - 1
    assert equals_generate(reference, prompts["t3"], third)


async def test_states_count_towards_the_budget(summing, make_engine, kept):
    async with make_engine(summing, **kept) as engine:
        for n in range(5):
            await answer(engine, turn_of(f"t{n}", [FIRST], f"s{n}"))
            gauges = (await engine.stats()).gauges
            assert 0 < gauges["kv_bytes"] <= gauges["kv_budget_bytes"]
        assert gauges["kv_bytes"] % summing.backend.shape.bytes_of(256) == 0
        assert (await engine.stats()).counters["kv_evictions"] > 0
