"""Models that hear: their answers about recordings are those of `generate`."""

from __future__ import annotations

import asyncio
import dataclasses
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from engine.api import Message, Seen, Speech, TurnDone, TurnFailed
from engine.models.backend import Backend
from tests.engine.conftest import answer
from tests.engine.test_pixels import (
    LENGTH,
    Pair,
    about,
    asked,
    generated,
    joined,
    load,
    talked,
)
from tests.engine.test_pixels import inputs_of as inputs_of_pictures


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return load("qwen2_5_omni", tmp_path_factory.mktemp("omni"))


@pytest.fixture
def sound(tmp_path: Path):
    """Make a recording that no other one equals, as perception would leave it."""

    def make(number: int, seconds: float = 1.0, **more: object) -> Seen:
        path = tmp_path / f"{number}.wav"
        times = np.arange(int(16_000 * seconds)) / 16_000
        tone = np.sin(2 * np.pi * (180 + 90 * number) * times * (1 + times)) * 9_000
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(tone.astype("<i2").tobytes())
        return heard(f"r{number}", str(path), duration_s=seconds, **more)

    return make


def heard(media: str, path: str, **more: object) -> Seen:
    return Seen(
        media=media,
        name=f"{media}.wav",
        path="/nowhere",
        media_type="audio/wav",
        width=0,
        height=0,
        sounds=(path,),
        **more,
    )


def samples_of(seen: Seen) -> np.ndarray:
    with wave.open(seen.sounds[0], "rb") as file:
        data = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return data.astype(np.float32) / 32_768


def inputs_of(pair: Pair, text: str, shown: list[Seen]) -> dict[str, torch.Tensor]:
    """What the family's own processor makes of a prompt, its pictures and its recordings."""
    if not any(seen.sounds for seen in shown):
        return inputs_of_pictures(pair, text, shown)
    images = [Image.open(s.pictures[0]).convert("RGB") for s in shown if s.pictures]
    made = pair.model.eyes.processor(
        images=images or None,
        audio=[samples_of(s) for s in shown if s.sounds],
        text=[text],
        add_special_tokens=False,
        return_tensors="pt",
    )
    return {name: value for name, value in made.items() if name != "num_audio_tokens"}


@pytest.mark.parametrize("window", [1, 7, 32, 512])
async def test_answers_about_recordings_equal_generate_for_any_window(
    pair,
    sound,
    picture,
    make_engine,
    window,
):
    """A picture between two recordings bends the positions of the second."""
    shown = [sound(1), picture(1), sound(2, 0.61)]
    turn = about("t", asked("What is said, and what is shown?", *shown))
    async with make_engine(pair.model, max_step_tokens=window, max_batch=1) as engine:
        events = await answer(engine, turn)
    assert events[0].prompt.count(pair.model.eyes.ears.mark) == 2
    expected, margin = generated(pair, inputs_of(pair, events[0].prompt, shown))
    assert margin > 1e-3, "a near tie would prove nothing"
    assert events[-1].token_ids == expected


async def test_sessions_with_recordings_pictures_and_neither_side_by_side_equal_generate(
    pair,
    sound,
    picture,
    make_engine,
):
    kinds = [lambda n: [sound(n, 0.3 + 0.2 * n)], lambda n: [picture(n)], lambda n: []]
    shown = {n: kinds[n % 3](n) for n in range(8)}
    turns = [
        about(f"t{n}", asked(f"Listen to number {n}. " * (n + 1), *shown[n]), session=f"s{n}")
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


def joined_sounds(parts: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    whole = joined(parts)
    for name in ("input_features", "feature_attention_mask"):
        if each := [part[name] for part in parts if name in part]:
            whole[name] = torch.cat(each)
    return whole


async def test_later_turns_with_another_recording_equal_generate_and_compute_only_what_is_new(
    pair,
    sound,
    picture,
    make_engine,
):
    one, two, three = sound(1), sound(2, 1.3), picture(3)
    asks = [asked("What is this?", one), asked("And this?", two), asked("And this?", three)]
    messages: list[Message] = []
    ids: list[dict[str, torch.Tensor]] = []
    told, kept = "", 0
    async with make_engine(pair.model) as engine:
        for number, (message, shown) in enumerate(zip(asks, ([one], [two], [three]), strict=True)):
            messages.append(message)
            events = await answer(engine, about(f"t{number}", *messages))
            started, done = events[0], events[-1]
            ids.append(inputs_of(pair, started.prompt.removeprefix(told), shown))
            expected, margin = generated(pair, joined_sounds(ids))
            assert margin > 1e-3, "a near tie would prove nothing"
            assert done.token_ids == expected
            assert started.cached_tokens == kept
            made = torch.tensor([done.token_ids])
            ids.append({"input_ids": made, "attention_mask": torch.ones_like(made)})
            kept = done.prompt_tokens + LENGTH - 1
            told = started.prompt + pair.model.tokenizer.decode(done.token_ids)
            messages.append(Message(role="assistant", text=done.text, turn=f"t{number}"))


async def test_recordings_in_a_context_restored_from_disk_stand_where_they_stood(
    pair, sound, make_engine, tmp_path
):
    turns = [
        asked("What is this?", sound(1)),
        asked("And this?", sound(2, 1.3)),
        asked("Which is longer?"),
    ]
    stayed = await talked(make_engine, pair.model, turns, restarts=False)
    named = dataclasses.replace(pair.model, backend=Backend(pair.model.backend.model))
    kept = {"kv_folder": str(tmp_path / "kv"), "kv_disk_floor_bytes": 0}
    back = await talked(make_engine, named, turns, restarts=True, **kept)
    assert back == stayed and back[2][1] > back[1][1] > 0


async def test_another_recording_of_the_same_length_is_never_taken_for_the_first(
    pair, sound, make_engine
):
    """The token ids of both prompts are equal; only the samples differ."""
    one, two = sound(1), sound(6)
    async with make_engine(pair.model) as engine:
        first = await answer(engine, about("t1", asked("What is this?", one)))
        other = heard("r1", two.sounds[0], duration_s=1.0)
        second = await answer(engine, about("t2", asked("What is this?", other)))
    expected, _ = generated(pair, inputs_of(pair, second[0].prompt, [two]))
    assert second[0].prompt == first[0].prompt
    assert second[-1].token_ids == expected != first[-1].token_ids


async def test_what_is_heard_needs_no_transcript_and_what_cannot_be_heard_has_it(
    pair, sound, make_engine
):
    said = (Speech(media="r1", id="u1", start_s=0, end_s=0.9, text="Pressure is high."),)
    long = sound(2, 4.5, speech=said)
    async with make_engine(pair.model) as engine:
        whole = (await answer(engine, about("t1", asked("Why?", sound(1, speech=said)))))[0]
        events = await answer(engine, about("t2", asked("Why?", long), session="b"))
        failed = (await engine.stats()).counters["pictures_failed"]
    assert "Recording r1.wav." in whole.prompt and "Pressure" not in whole.prompt
    # Four seconds are all that this model takes.
    assert isinstance(events[-1], TurnDone) and failed == 1
    assert "Pressure is high." in events[0].prompt
    assert pair.model.eyes.ears.mark not in events[0].prompt
    assert whole.sight == "text", "no pixels were seen"


async def test_a_mark_without_a_recording_is_never_said(pair, make_engine):
    """Positions of the next prompt are counted by these marks; one more and they fail."""
    config = pair.reference.config
    marks = {config.audio_start_token_id, config.vision_start_token_id, config.audio_token_id}
    assert marks <= set(pair.model.backend._unsaid)


async def test_positions_that_cannot_be_counted_fail_their_turn_alone(
    pair, sound, make_engine, monkeypatch
):
    """The engine's thread died of it, and every other turn waited for ever."""
    index = pair.model.backend.model.model.get_rope_index

    def broken(ids, **about):
        if len(about["audio_seqlens"]):
            raise ValueError("a mark too many")
        return index(ids, **about)

    monkeypatch.setattr(pair.model.backend.model.model, "get_rope_index", broken)
    async with make_engine(pair.model) as engine:
        failed = await answer(engine, about("t1", asked("Why?", sound(1))))
        other = await answer(engine, about("t2", asked("Why?"), session="b"))
    assert isinstance(failed[-1], TurnFailed) and isinstance(other[-1], TurnDone)
