"""An answer is found again by whoever asks exactly the same, and by nobody else."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from engine.answers import Answers, KnownAnswer
from engine.api import TurnDone
from engine.models.layout import Features, Picture, Placed
from engine.prompt import Prompt
from tests.engine.conftest import answer, question
from tests.engine.test_preemption import rest_of, until_it_speaks

TURN = question("Is it high?")
PROMPT = Prompt("", [1, 2, 3], ())
KNOWN = KnownAnswer((7, 8), (0.5, 0.25), "stop")


def placed(digest: bytes, start: int = 1) -> Prompt:
    import torch

    picture = Picture(digest, (2, 2), 2, Features(torch.zeros(2, 4)))
    return Prompt("", [1, 2, 2, 3], (), (Placed(start, picture),))


def test_the_same_question_finds_its_answer_under_any_name():
    answers = Answers(1 << 20)
    answers.keep(TURN, PROMPT, KNOWN)
    other = msgspec.structs.replace(
        TURN, id="x", session="y", priority=3, kind="background", seed=9
    )
    assert answers.find(other, PROMPT) == KNOWN
    assert answers.counters() == {"answer_cache_hits": 1.0, "answer_cache_misses": 0.0}


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "other"},
        {"max_new_tokens": 9},
        {"stop": ("x",)},
        {"stop_tokens": (1,)},
        {"json_schema": "{}"},
        {"repetition_penalty": 1.1},
        {"presence_penalty": 0.1},
        {"frequency_penalty": 0.1},
        {"temperature": 0.5},
    ],
)
def test_E12_whoever_asks_anything_else_does_not(change):
    answers = Answers(1 << 20)
    answers.keep(TURN, PROMPT, KNOWN)
    assert answers.find(msgspec.structs.replace(TURN, **change), PROMPT) is None


def test_E1_E9_another_picture_or_another_place_is_another_question():
    answers = Answers(1 << 20)
    answers.keep(TURN, placed(b"a" * 32), KNOWN)
    assert answers.find(TURN, placed(b"a" * 32)) == KNOWN
    assert answers.find(TURN, placed(b"a" * 31 + b"b")) is None
    assert answers.find(TURN, placed(b"a" * 32, start=2)) is None


def test_the_oldest_answers_go_first_and_a_sampled_one_is_never_kept():
    answers = Answers(2 * KNOWN.bytes)
    for n in range(4):
        answers.keep(TURN, Prompt("", [n], ()), KNOWN)
        answers.keep(TURN, Prompt("", [n], ()), KNOWN)
    found = [answers.find(TURN, Prompt("", [n], ())) for n in range(4)]
    assert found == [None, None, KNOWN, KNOWN]
    assert answers.gauges() == {"answer_cache_bytes": 2.0 * KNOWN.bytes}
    answers.keep(msgspec.structs.replace(TURN, temperature=1.0), PROMPT, KNOWN)
    assert answers.find(TURN, PROMPT) is None


def test_a_forgotten_sessions_answers_are_gone_and_others_stay():
    answers = Answers(1 << 20)
    for session in ("a", "b"):
        turn = msgspec.structs.replace(TURN, session=session, tenant=session)
        answers.keep(turn, PROMPT, KNOWN)
    answers.forget("a")
    assert answers.find(msgspec.structs.replace(TURN, tenant="a"), PROMPT) is None
    assert answers.find(msgspec.structs.replace(TURN, tenant="b"), PROMPT) == KNOWN
    assert answers.gauges() == {"answer_cache_bytes": float(KNOWN.bytes)}


async def test_dropping_a_session_drops_its_answers(tiny, make_engine):
    async with make_engine(tiny, answer_cache_bytes=1 << 20) as engine:
        await answer(engine, question("Is it?", "t1", "s1", max_new_tokens=4))
        await engine.drop("s1")
        stats = await engine.stats()
    assert stats.gauges["answer_cache_bytes"] == 0


def test_a_cache_of_nothing_keeps_nothing():
    answers = Answers(0)
    answers.keep(TURN, PROMPT, KNOWN)
    assert answers.find(TURN, PROMPT) is None


async def test_an_answer_made_before_it_was_asked_equals_a_fresh_one(tiny, make_engine):
    asked = question("Is it high?", "t", "s1", max_new_tokens=60, stop=("zz",))
    async with make_engine(tiny, answer_cache_bytes=0) as engine:
        fresh = await answer(engine, asked)
    unasked = msgspec.structs.replace(asked, id="b", kind="background")
    async with make_engine(tiny, answer_cache_bytes=1 << 20) as engine:
        assert isinstance((await answer(engine, unasked))[-1], TurnDone)
        steps = (await engine.stats()).counters["steps"]
        known = await answer(engine, asked)
        assert (await engine.stats()).counters["steps"] == steps
        # What comes next goes on from the same context.
        talk = (
            asked.messages[0],
            type(asked.messages[0])(role="assistant", text=known[-1].text, turn="t"),
            asked.messages[0],
        )
        after = msgspec.structs.replace(asked, id="n", messages=talk)
        cached = (await answer(engine, after))[-1].cached_tokens
    done, expected = known[-1], fresh[-1]
    assert (done.token_ids, done.text, done.finish) == (
        expected.token_ids,
        expected.text,
        expected.finish,
    )
    assert done.confidences == pytest.approx(expected.confidences, rel=1e-3)
    assert known[0].prompt == fresh[0].prompt
    assert cached >= done.prompt_tokens + len(done.token_ids) - 1


async def test_an_answer_that_was_cut_is_not_taken_for_the_whole(tiny, make_engine):
    asked = question("Is it high?", "t1", "s1", max_new_tokens=200)
    async with make_engine(tiny, answer_cache_bytes=1 << 20) as engine:
        stream = engine.submit(asked)
        await until_it_speaks(stream)
        await engine.cancel("t1")
        await rest_of(stream)
        whole = (await answer(engine, msgspec.structs.replace(asked, id="t2")))[-1]
        same = await asyncio.gather(
            *(answer(engine, msgspec.structs.replace(asked, id=f"x{n}")) for n in range(3))
        )
    assert len(whole.token_ids) == 200
    assert all(events[-1].token_ids == whole.token_ids for events in same)
