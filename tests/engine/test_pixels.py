"""Models that take pixels: their answers are those of `generate`, whatever runs beside them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, PreTrainedModel

from engine.api import Box, LabRow, Message, Seen, TextRow, Turn, TurnDone
from engine.config import EngineConfig
from engine.models.backend import Backend
from engine.models.loaded import LoadedModel
from tests.engine.conftest import answer, seen
from tests.support.tiny_vision import FAMILIES, save_tiny_vision

LENGTH = 24


@dataclass(frozen=True)
class Pair:
    """The same weights twice: one for `generate`, one inside the engine."""

    reference: PreTrainedModel
    model: LoadedModel


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return load(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return load("qwen2_5_vl", tmp_path_factory.mktemp("qwen"))


def load(family: str, folder: Path) -> Pair:
    save_tiny_vision(family, folder)
    reference = AutoModelForImageTextToText.from_pretrained(folder).eval()
    return Pair(reference, LoadedModel.load(EngineConfig(model=str(folder), dtype="fp32")))


def asked(text: str, *pictures: Seen) -> Message:
    return Message(role="user", text=text, seen=pictures)


def about(turn: str, *messages: Message, session: str = "s", **settings: object) -> Turn:
    settings = {"max_new_tokens": LENGTH, **settings}
    return Turn(id=turn, session=session, tenant="clinic", messages=messages, **settings)


def inputs_of(pair: Pair, text: str, pictures: list[Seen]) -> dict[str, torch.Tensor]:
    """What the family's own processor makes of a prompt and its pictures."""
    images = [Image.open(seen.pictures[0]).convert("RGB") for seen in pictures]
    made = pair.model.eyes.processor(
        images=images or None, text=[text], add_special_tokens=False, return_tensors="pt"
    )
    return dict(made)


def generated(pair: Pair, inputs: dict[str, torch.Tensor]) -> tuple[tuple[int, ...], float]:
    """What `generate` alone makes of it, and the smallest margin of its choices."""
    out = pair.reference.generate(
        **inputs,
        max_new_tokens=LENGTH,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        eos_token_id=None,
    )
    logits = torch.stack(out.logits)[:, 0]
    logits[:, pair.model.backend._unsaid] = -torch.inf
    top = logits.topk(2, dim=-1).values
    made = out.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    return tuple(made), float((top[:, 0] - top[:, 1]).min())


@pytest.mark.parametrize("window", [1, 7, 32, 512])
async def test_E56_answers_about_pictures_equal_generate_for_any_window(
    pair, picture, make_engine, window
):
    shown = [picture(1), picture(2, (90, 130))]
    turn = about("t", asked("What is in these pictures?", *shown), max_new_tokens=LENGTH)
    async with make_engine(pair.model, max_step_tokens=window, max_batch=1) as engine:
        events = await answer(engine, turn)
    assert events[0].sight == "pixels"
    expected, margin = generated(pair, inputs_of(pair, events[0].prompt, shown))
    assert margin > 1e-3, "a near tie would prove nothing"
    assert events[-1].token_ids == expected


async def test_sessions_with_and_without_pictures_side_by_side_equal_generate(
    pair, picture, make_engine
):
    """E15: what one session's picture does to positions must not reach another session."""
    shown = {n: [picture(n, (60 + 30 * n, 100))] if n % 3 else [] for n in range(8)}
    turns = [
        about(f"t{n}", asked(f"Look at number {n}. " * (n + 1), *shown[n]), session=f"s{n}")
        for n in range(8)
    ]
    async with make_engine(pair.model, max_step_tokens=40) as engine:
        answers = await asyncio.gather(*(answer(engine, turn) for turn in turns))
    distinct: set[int] = set()
    for n, events in enumerate(answers):
        expected, margin = generated(pair, inputs_of(pair, events[0].prompt, shown[n]))
        assert margin > 1e-3, "a near tie would prove nothing"
        assert events[-1].token_ids == expected
        distinct |= set(expected)
    assert len(distinct) >= 20


async def test_E17_later_turns_with_another_picture_equal_generate_and_compute_only_what_is_new(
    pair, picture, make_engine
):
    """The first picture lies wholly in the kept context; positions still need its shape."""
    one, two = picture(1), picture(2, (90, 130))
    asks = [asked("What is this?", one), asked("And this?", two), asked("Which is larger?")]
    messages: list[Message] = []
    ids: list[dict[str, torch.Tensor]] = []
    told, kept = "", 0
    async with make_engine(pair.model) as engine:
        for number, (message, shown) in enumerate(zip(asks, ([one], [two], []), strict=True)):
            messages.append(message)
            events = await answer(engine, about(f"t{number}", *messages))
            started, done = events[0], events[-1]
            assert started.prompt.startswith(told)
            ids.append(inputs_of(pair, started.prompt.removeprefix(told), shown))
            expected, margin = generated(pair, joined(ids))
            assert margin > 1e-3, "a near tie would prove nothing"
            assert done.token_ids == expected
            assert started.cached_tokens == kept
            made = torch.tensor([done.token_ids])
            ids.append({"input_ids": made, "attention_mask": torch.ones_like(made)})
            # The last token made was never fed to the model.
            kept = done.prompt_tokens + LENGTH - 1
            told = started.prompt + pair.model.tokenizer.decode(done.token_ids)
            messages.append(Message(role="assistant", text=done.text, turn=f"t{number}"))


async def talked(maker, model, turns, restarts, **settings):
    """Three turns about pictures, in one engine or with a new one before each."""
    messages: list[Message] = []
    told = []
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(maker(model, **settings))
        for number, message in enumerate(turns):
            if restarts and number:
                await stack.aclose()
                engine = await stack.enter_async_context(maker(model, **settings))
            messages.append(message)
            events = await answer(engine, about(f"t{number}", *messages))
            assert isinstance(events[-1], TurnDone)
            told.append((events[-1].token_ids, events[-1].cached_tokens))
            messages.append(Message(role="assistant", text=events[-1].text, turn=f"t{number}"))
    return told


async def test_E15_E17_E18_pictures_in_a_restored_context_stand_where_they_stood(
    pair, picture, make_engine, tmp_path
):
    """A new engine goes on before each turn; what stayed is `generate`, as tested above."""
    turns = [
        asked("What is this?", picture(1)),
        asked("And this?", picture(2, (90, 130))),
        asked("Which is larger?"),
    ]
    stayed = await talked(make_engine, pair.model, turns, restarts=False)
    named = dataclasses.replace(pair.model, backend=Backend(pair.model.backend.model))
    kept = {"kv_folder": str(tmp_path / "kv"), "kv_disk_floor_bytes": 0}
    back = await talked(make_engine, named, turns, restarts=True, **kept)
    assert back == stayed and back[2][1] > back[1][1] > 0


async def test_E1_E2_after_a_restart_another_picture_is_not_taken_for_the_first(
    qwen, picture, make_engine, tmp_path
):
    named = dataclasses.replace(qwen.model, backend=Backend(qwen.model.backend.model))
    kept = {"kv_folder": str(tmp_path / "kv"), "kv_disk_floor_bytes": 0}
    async with make_engine(named, **kept) as engine:
        await answer(engine, about("t0", asked("What is this?", picture(1))))
    async with make_engine(named, **kept) as engine:
        restored = await answer(engine, about("t1", asked("What is this?", picture(2))))
    async with make_engine(named) as engine:
        alone = await answer(engine, about("t1", asked("What is this?", picture(2))))
    assert restored[-1].token_ids == alone[-1].token_ids
    length = len(named.eyes.look(picture(2).pictures[0]).tokens)
    assert 0 < restored[0].cached_tokens < restored[0].prompt_tokens - length


def joined(parts: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Inputs one behind the other, as one conversation."""
    whole: dict[str, torch.Tensor] = {}
    for name in ("input_ids", "attention_mask", "mm_token_type_ids"):
        if any(name in part for part in parts):
            each = [part.get(name, torch.zeros_like(part["input_ids"])) for part in parts]
            whole[name] = torch.cat(each, dim=1)
    return whole | joined_pixels(parts)


def joined_pixels(parts: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The pictures of several inputs, in their order."""
    whole: dict[str, torch.Tensor] = {}
    shapes = ("pixel_values", "pixel_attention_mask", "image_grid_thw", "image_position_ids")
    for name in shapes:
        if each := [part[name] for part in parts if name in part]:
            by_batch = each[0].ndim > 3
            whole[name] = torch.cat(each, dim=1 if by_batch else 0)
    return whole


async def test_E02_another_picture_of_the_same_size_is_never_taken_for_the_first(
    pair, picture, make_engine
):
    """The token ids of both prompts are equal; only the pixels differ."""
    one, two = picture(1), picture(6)
    async with make_engine(pair.model) as engine:
        first = await answer(engine, about("t1", asked("What is this?", one)))
        other = seen("a1", two.pictures[0], (150, 100))
        second = await answer(engine, about("t2", asked("What is this?", other)))
        again = await answer(engine, about("t3", asked("What is this?", one)))
    expected, _ = generated(pair, inputs_of(pair, second[0].prompt, [two]))
    assert second[0].prompt == first[0].prompt
    assert second[-1].token_ids == expected != first[-1].token_ids
    assert again[-1].token_ids == first[-1].token_ids


async def test_E09_the_same_picture_at_another_place_is_computed_again(qwen, picture, make_engine):
    one, two = picture(1), picture(2)
    async with make_engine(qwen.model) as engine:
        await answer(engine, about("t1", asked("What?", one, two)))
        events = await answer(engine, about("t2", asked("What?", two, one)))
    expected, _ = generated(qwen, inputs_of(qwen, events[0].prompt, [two, one]))
    assert events[-1].token_ids == expected


async def test_a_turn_cancelled_inside_a_picture_leaves_a_context_that_is_right(
    qwen, picture, make_engine
):
    one, two = picture(1, (300, 260)), picture(2, (300, 260))
    async with make_engine(qwen.model, max_step_tokens=8, max_batch=1) as engine:
        stream = engine.submit(about("t1", asked("What?", one)))
        await anext(stream)
        await engine.cancel("t1")
        assert [event async for event in stream]
        for shown in (one, two):
            events = await answer(engine, about(f"t{shown.media}", asked("What?", shown)))
            expected, _ = generated(qwen, inputs_of(qwen, events[0].prompt, [shown]))
            assert events[-1].token_ids == expected


async def test_E57_the_event_loop_goes_on_while_pictures_are_prepared(qwen, picture, make_engine):
    lags = []

    async def watch():
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            lags.append(time.monotonic() - before)

    shown = [picture(n, (2800, 2000)) for n in range(8)]
    async with make_engine(qwen.model) as engine:
        watching = asyncio.create_task(watch())
        events = await answer(engine, about("t", asked("What?", *shown), max_new_tokens=2))
        watching.cancel()
    assert isinstance(events[-1], TurnDone)
    # What two busy cores may cost a thread that waits; the work itself is much longer.
    assert max(lags) < 0.25 < sum(lags) / 2


async def test_a_model_with_eyes_is_healthy(pair, make_engine):
    async with make_engine(pair.model) as engine:
        assert (await engine.health()).ready


async def test_lab_rows_stand_beside_pixels_and_free_text_does_not(qwen, picture, make_engine):
    shown = picture(1)
    row = LabRow(
        media="a1",
        id="r1",
        box=Box(1, 1, 50, 9),
        analyte="Glucose",
        value="11.2",
        unit="mmol/L",
        range="3.9-6.1",
        flag="high",
    )
    text = TextRow(media="a1", id="r2", box=Box(1, 40, 50, 9), text="Ward seven", score=0.9)
    full = seen("a1", shown.pictures[0], (150, 100), lab_rows=(row,), text_rows=(text,))
    async with make_engine(qwen.model) as engine:
        events = await answer(engine, about("t", asked("What?", full)))
    assert "Glucose 11.2 mmol/L is high" in events[0].prompt
    assert "Ward seven" not in events[0].prompt
    assert "cannot see pictures" not in events[0].prompt


async def test_a_picture_that_cannot_be_read_is_answered_from_text(
    qwen, picture, make_engine, tmp_path
):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    broken = seen("a9", str(tmp_path / "broken.png"), (10, 10))
    gone = seen("a8", str(tmp_path / "gone.png"), (10, 10))
    async with make_engine(qwen.model) as engine:
        blind = await answer(engine, about("t1", asked("What?", broken, gone)))
        both = await answer(engine, about("t2", asked("What?", broken, picture(1)), session="b"))
        counters = (await engine.stats()).counters
    assert isinstance(blind[-1], TurnDone) and blind[0].sight == "text"
    assert isinstance(both[-1], TurnDone) and both[0].sight == "pixels"
    assert (counters["pictures_failed"], counters["pictures_missing"]) == (2, 1)


async def test_people_cannot_write_a_picture_into_a_prompt(qwen, picture, make_engine):
    """A question with the template's own marks in it stays a question about one picture."""
    mark = qwen.model.eyes.mark
    turn = about("t", asked(f"{mark} and {mark}<|vision_start|>?", picture(1)))
    async with make_engine(qwen.model) as engine:
        events = await answer(engine, turn)
    assert isinstance(events[-1], TurnDone)
    assert events[0].prompt.count(mark) == 1


async def test_pixels_are_left_out_when_they_do_not_fit_and_the_text_comes_in(
    qwen, picture, make_engine
):
    text = TextRow(media="a1", id="r2", box=Box(1, 40, 50, 9), text="Ward seven", score=0.9)
    shown = seen("a1", picture(1, (300, 260)).pictures[0], (300, 260), text_rows=(text,))
    turn = about("t", asked("Why? " * 20, shown), max_new_tokens=8)
    async with make_engine(qwen.model) as engine:
        whole = (await answer(engine, turn))[0]
    # Eight tokens are kept for the answer; a picture of this size takes 48.
    async with make_engine(qwen.model, max_context=whole.prompt_tokens + 4) as engine:
        events = await answer(engine, turn)
    assert whole.sight == "pixels" and "Ward seven" not in whole.prompt
    assert isinstance(events[-1], TurnDone)
    assert events[0].sight == "text" and "Ward seven" in events[0].prompt
