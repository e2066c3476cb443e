"""The engine's central test: whatever happens beside and to a turn, its tokens are `generate`'s.

Everything at once: turns of every kind arrive while others run, two slots and little memory make
them displace each other, some are cancelled, contexts go to RAM, to disk and through a restart.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import msgspec
import pytest
import torch

from engine.api import Message, Turn, TurnCancelled, TurnDelta, TurnDone
from engine.models.backend import Backend
from engine.policy import Pace
from engine.prompter import Prompter
from tests.engine.conftest import answer, question

LENGTH = 16
TURNS = 4
SESSIONS = 8
QUESTIONS = ["Is it high?", "Which values are high? Sodium is low.", "糖化血红蛋白 偏高 🎉", "Why?"]


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


async def talk(engine, session: int, chance: random.Random, done: dict[str, TurnDone]) -> list:
    """Ask four turns of one conversation, each when it wants to, of any kind, some cut short."""
    messages: list[Message] = []
    for n in range(TURNS):
        await asyncio.sleep(chance.random() * 0.05)
        text = QUESTIONS[chance.randrange(len(QUESTIONS))] * chance.randint(1, 3)
        messages.append(Message(role="user", text=f"{text} {session}"))
        turn = turn_of(
            f"s{session}-{n}",
            session,
            messages,
            kind=chance.choice(["text", "image", "video"]),
            priority=chance.randint(0, 1),
        )
        cut, shown = chance.choice([0, 0, 0, 3]), ""
        async for event in engine.submit(turn):
            if isinstance(event, TurnDelta):
                shown += event.text
                cut -= 1
                if cut == 0:
                    await engine.cancel(turn.id)
        if isinstance(event, TurnDone):
            done[turn.id] = event
        else:
            assert isinstance(event, TurnCancelled)
        messages.append(Message(role="assistant", text=shown, turn=turn.id))
    return messages


def turn_of(name: str, session: int, messages: list[Message], **settings) -> Turn:
    turn = question("", name, f"s{session}", max_new_tokens=LENGTH, **settings)
    return msgspec.structs.replace(turn, messages=tuple(messages))


def check(reference, prompts, done):
    """Of turns that were cut the next prompt depends on the moment: now and then one is a tie."""
    distinct, ties = set(), 0
    for turn, event in done.items():
        ids = torch.tensor([prompts[turn]])
        out = reference.generate(
            ids,
            max_new_tokens=LENGTH,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
            eos_token_id=None,
        )
        top = torch.stack(out.logits).topk(2, dim=-1).values[:, 0]
        if float((top[:, 0] - top[:, 1]).min()) <= 1e-3:
            ties += 1
            continue
        assert event.token_ids == tuple(out.sequences[0, ids.shape[1] :].tolist()), turn
        distinct |= set(event.token_ids)
    assert len(distinct) >= 20
    assert ties <= 1, "near ties prove nothing"


@pytest.mark.parametrize("window", [1, 7, 32, 0])
async def test_turns_that_displace_each_other_are_cut_evicted_and_restored_equal_generate(
    tiny_pair, make_engine, prompts, monkeypatch, tmp_path, window
):
    reference, model = tiny_pair
    model = replace(model, backend=Backend(model.backend.model))
    if window:
        monkeypatch.setattr(Pace, "window", lambda self, decoding, step_tokens: window)
    settings = {
        "max_batch": 2,
        "kv_budget_bytes": 4 * model.backend.shape.bytes_of(256),
        "kv_ram_bytes": 8 << 20,
        "kv_folder": str(tmp_path / "kv"),
        "kv_disk_floor_bytes": 0,
    }
    chance = random.Random(window)
    done: dict[str, TurnDone] = {}
    async with make_engine(model, **settings) as engine:
        talks = await asyncio.gather(
            *(talk(engine, n, random.Random(chance.random()), done) for n in range(SESSIONS))
        )
        counters = (await engine.stats()).counters
    assert counters["turns_preempted"] > 0 and counters["tokens_resumed"] > 0
    assert counters["kv_evictions"] > 0 and counters["turns_cancelled"] > 0
    # A restart: every conversation goes on from what lies on disk.
    kept = 0
    async with make_engine(model, **settings) as engine:
        for n, messages in enumerate(talks):
            asked = [*messages, Message(role="user", text="And now?")]
            turn = turn_of(f"s{n}-last", n, asked)
            done[turn.id] = (await answer(engine, turn))[-1]
            kept += done[turn.id].cached_tokens
    assert kept > 0
    check(reference, prompts, done)
