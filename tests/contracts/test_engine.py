"""The engine's contract, kept by the engine in this process and by the one behind a socket."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import pytest_asyncio

from engine.api import (
    Box,
    EngineCode,
    LabRow,
    Media,
    MediaFailed,
    Message,
    Seen,
    Turn,
    TurnAnnotation,
    TurnCancelled,
    TurnDelta,
    TurnDone,
    TurnFailed,
    TurnStarted,
)
from engine.client import EngineClient, EngineSettings, default_models_cache
from engine.config import EngineConfig
from engine.embedded import pull
from engine.engine import LocalEngine

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

SHEET = Seen(
    media="m",
    name="sheet.png",
    path="",
    media_type="image/png",
    width=800,
    height=600,
    lab_rows=(
        LabRow(
            media="m",
            id="r1",
            box=Box(1, 2, 3, 4),
            analyte="Glucose",
            value="11.2",
            unit="mmol/L",
            range="3.9-6.1",
            flag="high",
            number=11.2,
        ),
    ),
)


@pytest.fixture(scope="module")
def model_folder():
    return pull("smollm2-135m", default_models_cache(dict(os.environ)))


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["local", "client"])
async def engine(request, model_folder, tmp_path_factory):
    if request.param == "local":
        made = await LocalEngine.load(EngineConfig(model=str(model_folder)))
        await made.start()
    else:
        settings = EngineSettings(
            models_cache=str(model_folder.parent), has_perception=False, threads=2
        )
        # A Unix socket's path may have about 100 characters.
        made = EngineClient(
            Path(tmp_path_factory.mktemp("e") / "s"), settings, ready_timeout_s=60.0
        )
        await made.start()
    yield made
    await made.stop()


def ask(text, turn, session="s", *, seen=(), earlier=(), **settings):
    messages = (*earlier, Message(role="user", text=text, seen=seen))
    settings = {"max_new_tokens": 16} | settings
    return Turn(id=turn, session=session, tenant="clinic", messages=messages, **settings)


async def events_of(engine, turn):
    return [event async for event in engine.submit(turn)]


async def test_an_answer_is_started_streamed_and_done(engine):
    events = await events_of(engine, ask("Which lab value is high?", "a1", seen=(SHEET,)))
    started, done = events[0], events[-1]
    assert isinstance(started, TurnStarted) and isinstance(done, TurnDone)
    assert started.sight == "text"
    assert "Glucose 11.2 mmol/L is high (range 3.9-6.1)" in started.prompt
    deltas = [event for event in events if isinstance(event, TurnDelta)]
    assert len(deltas) > 3
    assert "".join(delta.text for delta in deltas) == done.text != ""
    assert done.timings["queued"] <= done.timings["first_token"] <= done.timings["total"]


async def test_without_the_sheet_the_answer_differs(engine):
    told = await events_of(engine, ask("Which lab value is high?", "b1", "b", seen=(SHEET,)))
    untold = await events_of(engine, ask("Which lab value is high?", "b2", "b2"))
    assert untold[0].sight == "none"
    assert told[-1].text != untold[-1].text


async def test_annotations_point_at_the_row_they_speak_of(engine):
    text = "Repeat exactly: Glucose 11.2 mmol/L"
    events = await events_of(engine, ask(text, "c1", "c", seen=(SHEET,), max_new_tokens=40))
    tied = [event for event in events if isinstance(event, TurnAnnotation)]
    assert tied and {event.observation for event in tied} == {"r1"}
    for event in tied:
        assert events[-1].text[event.start : event.end].lower() in ("glucose", "11.2")


async def test_E20_a_later_turn_reuses_what_is_known(engine):
    first = await events_of(engine, ask("What is glucose?", "d1", "d"))
    earlier = (
        Message(role="user", text="What is glucose?"),
        Message(role="assistant", text=first[-1].text, turn="d1"),
    )
    second = await events_of(engine, ask("And insulin?", "d2", "d", earlier=earlier))
    reused = first[-1].prompt_tokens + len(first[-1].token_ids) - 1
    assert second[0].cached_tokens == second[-1].cached_tokens == reused
    await engine.prefetch("d")
    await engine.drop("d")
    third = await events_of(engine, ask("And insulin?", "d3", "d", earlier=earlier))
    assert third[0].cached_tokens == 0


async def test_several_sessions_stream_at_once(engine):
    alive = 0
    most = 0

    async def follow(n):
        nonlocal alive, most
        async for event in engine.submit(ask("What is sodium?", f"e{n}", f"e{n}")):
            if isinstance(event, TurnStarted):
                alive += 1
                most = max(most, alive)
        alive -= 1
        return event

    last = await asyncio.gather(*(follow(n) for n in range(4)))
    assert all(isinstance(event, TurnDone) for event in last)
    assert most == 4


async def test_a_cancelled_turn_ends_once_and_soon(engine):
    events = []
    async for event in engine.submit(ask("Tell me all.", "f1", "f", max_new_tokens=400)):
        events.append(event)
        if len(events) == 4:
            assert await engine.cancel("f1")
    assert isinstance(events[-1], TurnCancelled)
    assert len(events) < 40
    assert not await engine.cancel("f1")


async def test_leaving_the_stream_cancels_the_turn(engine):
    stream = engine.submit(ask("Tell me all.", "g1", "g", max_new_tokens=400))
    await anext(stream)
    await stream.aclose()
    async with asyncio.timeout(5):
        while (await engine.stats()).gauges["turns_running"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_refusals_carry_their_codes_and_harm_nobody(engine):
    cases = {
        "h1": (ask("血糖为什么升高？", "h1"), EngineCode.LANGUAGE_UNSUPPORTED),
        "h2": (ask("glucose " * 9000, "h2"), EngineCode.CONTEXT_FULL),
        "h3": (ask("Hello", "h3", max_new_tokens=0), EngineCode.INTERNAL),
    }
    for turn, code in cases.values():
        events = await events_of(engine, turn)
        assert isinstance(events[-1], TurnFailed) and len(events) == 1
        assert events[0].code is code
    assert (await engine.health()).ready


async def test_media_without_perception_fail_with_their_last_observation(engine):
    media = Media(id="m", tenant="c", path="/nowhere", name="x.png", derived_dir="/nowhere")
    observations = [observation async for observation in engine.open(media)]
    assert [type(observation) for observation in observations] == [MediaFailed]
    await engine.feed("m", b"late", 0)
    await engine.close("m")


async def test_health_and_stats_come_from_the_model(engine):
    health = await engine.health()
    assert health.ready and health.model == "smollm2-135m" and health.dtype == "bf16"
    stats = await engine.stats()
    assert stats.counters["tokens_generated"] > 0
    assert stats.gauges["kv_bytes"] <= stats.gauges["kv_budget_bytes"]
