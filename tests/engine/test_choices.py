"""How a turn chooses its tokens, through the engine."""

from __future__ import annotations

import asyncio

import pytest

from engine.api import TurnFailed
from tests.engine.conftest import answer, question


async def test_a_stop_token_ends_the_answer_and_is_no_part_of_it(tiny, make_engine):
    async with make_engine(tiny) as engine:
        whole = (await answer(engine, question("A?", "t1", "s1")))[-1].token_ids
        stop = whole[5]
        cut = (await answer(engine, question("A?", "t2", "s2", stop_tokens=(stop,))))[-1]
    assert (cut.token_ids, cut.finish) == (whole[: whole.index(stop)], "stop")


async def test_E63_a_sampled_answer_is_the_same_whatever_runs_beside_it(tiny, make_engine):
    asked = {
        "temperature": 1.2,
        "top_k": 50,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
        "max_new_tokens": 30,
    }

    def turns(count):
        return [question("A?", f"t{n}", f"s{count}-{n}", seed=n, **asked) for n in range(count)]

    async with make_engine(tiny) as engine:
        alone = [(await answer(engine, turn))[-1].token_ids for turn in turns(3)]
        beside = await asyncio.gather(*(answer(engine, turn) for turn in turns(8)))
    assert [events[-1].token_ids for events in beside[:3]] == alone
    assert len(set(alone)) == 3


@pytest.mark.parametrize(
    "bad",
    [
        {"top_k": -1},
        {"min_p": 1.5},
        {"repetition_penalty": 0.0},
        {"presence_penalty": 3.0},
        {"frequency_penalty": float("nan")},
        {"temperature": float("nan")},
    ],
)
async def test_numbers_out_of_range_are_refused(tiny, make_engine, bad):
    async with make_engine(tiny) as engine:
        assert isinstance((await answer(engine, question("A?", **bad)))[-1], TurnFailed)
