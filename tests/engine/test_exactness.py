"""The engine's central test: whatever happens beside and to a turn, its tokens are `generate`'s.

Everything at once: turns of every kind arrive while others run, two slots and little memory make
them displace each other, some are cancelled, contexts go to RAM, to disk and through a restart.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from PIL import Image

from engine.api import Message, Turn, TurnCancelled, TurnDelta, TurnDone
from engine.giveway import GiveWay
from engine.models.backend import Backend
from engine.models.eyes import Eyes
from engine.models.layout import Picture
from engine.policy import Pace
from engine.prompt import Prompt
from engine.prompter import Prompter
from tests.engine.conftest import answer, question
from tests.engine.test_pixels import Pair, joined_pixels, load
from tests.support.tiny_vision import FAMILIES

LENGTH = 16
TURNS = 4
SESSIONS = 8
QUESTIONS = ["Is it high?", "Which values are high? Sodium is low.", "糖化血红蛋白 偏高 🎉", "Why?"]


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
    compared = Compared()
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
        compared.add(
            event, out.sequences[0, ids.shape[1] :].tolist(), torch.stack(out.logits)[:, 0]
        )
    compared.check()


class Compared:
    """Answers beside those of `generate`, each up to its first near tie: that proves nothing.

    Which turns there are, and what was delivered of those before, is left to the clock; so a tie
    in one of hundreds of tokens cannot be ruled out.
    """

    def __init__(self) -> None:
        self._distinct: set[int] = set()
        self._tokens = 0
        self._equal = 0

    def add(self, event: TurnDone, expected: list[int], logits: torch.Tensor) -> None:
        top = logits.topk(2, dim=-1).values
        ties = (top[:, 0] - top[:, 1] <= 1e-3).nonzero()
        first = int(ties[0]) if len(ties) else len(expected)
        assert list(event.token_ids[:first]) == expected[:first], event.turn
        self._distinct |= set(event.token_ids[:first])
        self._tokens += len(expected)
        self._equal += first

    def check(self) -> None:
        assert len(self._distinct) >= 20 and self._tokens >= 200
        assert self._equal >= 0.9 * self._tokens


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have steps given up at random layers."""
    chance = random.Random(3)
    monkeypatch.setattr(GiveWay, "is_due", lambda self, rank: chance.random() < 0.02)


@pytest.mark.parametrize("window", [1, 7, 32, 0])
@pytest.mark.usefixtures("given_up")
async def test_turns_that_displace_each_other_are_cut_evicted_and_restored_equal_generate(
    tiny_pair, make_engine, prompts, monkeypatch, tmp_path, window
):
    reference, model = tiny_pair
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
    is_recurrent = model.backend.shape.state is not None
    assert ("steps_abandoned" in counters) is not is_recurrent
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


class Album:
    """What the reference needs of each picture that the engine was shown, by digest."""

    def __init__(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        self._eyes = pair.model.eyes
        self._paths: dict[bytes, str] = {}
        look = Eyes.look

        def spy(eyes: Eyes, path: str) -> Picture:
            picture = look(eyes, path)
            self._paths[picture.digest] = path
            return picture

        monkeypatch.setattr(Eyes, "look", spy)

    def inputs(self, prompt: Prompt) -> dict[str, torch.Tensor]:
        """The prompt's tokens with the pixels of all its pictures, as `generate` takes them."""
        ids = torch.tensor([prompt.tokens])
        whole = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        parts = [self._pixels(self._paths[placed.picture.digest]) for placed in prompt.placed]
        whole |= joined_pixels(parts)
        if any("mm_token_type_ids" in part for part in parts):
            whole["mm_token_type_ids"] = (ids == self._eyes.placeholder).int()
        return whole

    def _pixels(self, path: str) -> dict[str, torch.Tensor]:
        image = Image.open(path).convert("RGB")
        made = self._eyes.processor(
            images=[image], text=[self._eyes.mark], add_special_tokens=False, return_tensors="pt"
        )
        return dict(made)


@pytest.fixture(params=FAMILIES)
def seeing(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    return load(request.param, tmp_path / "model")


async def show(engine, session: int, chance: random.Random, picture, done) -> list[Message]:
    """As `talk`, a picture with every other question; some turns are cut short."""
    messages: list[Message] = []
    for n in range(TURNS):
        await asyncio.sleep(chance.random() * 0.05)
        shown = (picture(session * TURNS + n, (60 + 10 * n, 80)),) if n % 2 == 0 else ()
        messages.append(Message(role="user", text=f"Look {session}?", seen=shown))
        turn = turn_of(f"s{session}-{n}", session, messages, priority=chance.randint(0, 1))
        cut, said = chance.choice([0, 0, 3]), ""
        async for event in engine.submit(turn):
            if isinstance(event, TurnDelta):
                said += event.text
                cut -= 1
                if cut == 0:
                    await engine.cancel(turn.id)
        if isinstance(event, TurnDone):
            done[turn.id] = event
        messages.append(Message(role="assistant", text=said, turn=turn.id))
    return messages


@pytest.mark.usefixtures("given_up")
async def test_turns_about_pictures_displace_each_other_and_equal_generate(
    seeing, picture, make_engine, monkeypatch, tmp_path
):
    album = Album(seeing, monkeypatch)
    prompts: dict[str, Prompt] = {}
    write = Prompter.write

    def spy(self, sequence, session):
        prompts[sequence.turn.id] = write(self, sequence, session)
        return prompts[sequence.turn.id]

    monkeypatch.setattr(Prompter, "write", spy)
    monkeypatch.setattr(Pace, "window", lambda self, decoding, step_tokens: 7)
    model = replace(seeing.model, backend=Backend(seeing.model.backend.model))
    settings = {
        "max_batch": 2,
        "kv_budget_bytes": 4 * 1024 * model.backend.shape.token_bytes,
        "kv_ram_bytes": 16 << 20,
        "kv_folder": str(tmp_path / "kv"),
        "kv_disk_floor_bytes": 0,
    }
    done: dict[str, TurnDone] = {}
    async with make_engine(model, **settings) as engine:
        talks = await asyncio.gather(
            *(show(engine, n, random.Random(n), picture, done) for n in range(6))
        )
        counters = (await engine.stats()).counters
    assert counters["turns_preempted"] > 0 and counters["turns_cancelled"] > 0
    is_recurrent = model.backend.shape.state is not None
    assert ("steps_abandoned" in counters) is not is_recurrent
    kept = 0
    async with make_engine(model, **settings) as engine:
        for n, messages in enumerate(talks):
            turn = turn_of(f"s{n}-last", n, [*messages, Message(role="user", text="And now?")])
            done[turn.id] = (await answer(engine, turn))[-1]
            kept += done[turn.id].cached_tokens
    assert kept > 0
    compared = Compared()
    for turn, event in done.items():
        inputs = album.inputs(prompts[turn])
        out = seeing.reference.generate(
            **inputs,
            max_new_tokens=LENGTH,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
            eos_token_id=None,
        )
        logits = torch.stack(out.logits)[:, 0]
        logits[:, model.backend._unsaid] = -torch.inf
        expected = out.sequences[0, inputs["input_ids"].shape[1] :].tolist()
        compared.add(event, expected, logits)
    compared.check()
