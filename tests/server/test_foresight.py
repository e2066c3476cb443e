"""What is done for a room while nobody asks."""

from __future__ import annotations

import asyncio

import pytest

from engine import api
from server import foresight
from server.config import BadSettings, Settings
from tests.support.scripted_engine import ScriptedEngine

SHEET = b"\x89PNG a sheet"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(foresight.Foresight.__init__, "__kwdefaults__", {"quiet_s": 0.05})


@pytest.fixture
def engine():
    return ScriptedEngine()


def ahead(engine) -> list[api.Turn]:
    return [turn for turn in engine.asked if turn.kind == "background"]


async def read_sheet(client, engine, stream: int = 1) -> str:
    asset = (await client.upload(SHEET, stream=stream))["asset"]
    look = engine.look(asset)
    look.put_nowait(api.Detected(media=asset, media_type="image/png", width=100, height=100))
    box = api.Box(1, 1, 50, 9)
    look.put_nowait(
        api.LabRow(
            media=asset,
            id="r1",
            box=box,
            analyte="Glucose",
            value="11.2",
            unit="mmol/L",
            range="3.9-6.1",
            flag="high",
        )
    )
    look.put_nowait(api.Completed(media=asset))
    await client.hear("asset.read")
    return asset


async def test_a_sheet_is_read_to_the_model_before_anybody_asks(start, engine):
    server = await start(engine)
    mei = await server.join("Mei", department="Lab")
    await read_sheet(mei, engine)
    await engine.until(lambda: ahead(engine))
    turn = ahead(engine)[0]
    assert (turn.session, turn.tenant, turn.max_new_tokens) == ("ward-7", "ward-7", 1)
    assert turn.messages[-1].speaker == "Mei (Lab)"
    assert turn.messages[-1].seen[0].lab_rows[0].analyte == "Glucose"
    engine.says(turn.id, "x")
    await mei.comment("c1")
    assert not [event for event in mei.events() if event["type"].startswith("turn.")]


async def test_frequent_questions_are_answered_ahead_as_a_person_would_ask_them(
    start, engine, tmp_path
):
    questions = tmp_path / "questions.txt"
    questions.write_text("What is high?\n\n  Is it urgent? \n")
    server = await start(engine, frequent_questions_file=questions)
    mei = await server.join("Mei")
    await read_sheet(mei, engine)
    await engine.until(lambda: ahead(engine))
    engine.says(ahead(engine)[0].id, "Glucose.")
    await engine.until(lambda: len(ahead(engine)) == 2)
    engine.says(ahead(engine)[1].id, "Yes.")
    assert [t.messages[-1].text for t in ahead(engine)] == ["What is high?", "Is it urgent?"]
    engine.says("t1", "Glucose.")
    await mei.say(type="ask", turn="t1", text="What is high?")
    await mei.hear("turn.done")
    asked = next(turn for turn in engine.asked if turn.id == "t1")
    assert asked.messages == ahead(engine)[0].messages
    assert asked.max_new_tokens == ahead(engine)[0].max_new_tokens


async def test_after_an_answer_the_next_question_is_prepared_with_it(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    engine.says("t1", "Glucose is high.")
    await mei.say(type="ask", turn="t1", text="What is high?")
    await mei.hear("turn.done")
    await engine.until(lambda: ahead(engine))
    assert [m.text for m in ahead(engine)[0].messages] == ["What is high?", "Glucose is high.", "?"]


async def test_nothing_is_prepared_while_a_turn_runs_or_nobody_is_there(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    engine.says("t1", "so", done=False)
    await mei.say(type="ask", turn="t1", text="?")
    await read_sheet(mei, engine)
    await asyncio.sleep(0.3)
    assert not ahead(engine)


async def test_an_engine_that_ends_it_is_asked_again_only_when_something_new_came(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    await read_sheet(mei, engine)
    await engine.until(lambda: ahead(engine))
    first = ahead(engine)[0].id
    engine.script(first).put_nowait(api.TurnCancelled(turn=first, token_ids=()))
    await asyncio.sleep(0.3)
    assert len(ahead(engine)) == 1
    await read_sheet(mei, engine, stream=2)
    await engine.until(lambda: len(ahead(engine)) == 2)


async def test_it_can_be_turned_off(start, engine):
    server = await start(engine, look_ahead=False)
    mei = await server.join("Mei")
    await read_sheet(mei, engine)
    await asyncio.sleep(0.3)
    assert not ahead(engine)


def test_a_file_of_questions_that_cannot_be_read_says_so(tmp_path):
    with pytest.raises(BadSettings, match="FREQUENT_QUESTIONS_FILE"):
        Settings(frequent_questions_file=tmp_path / "none").frequent_questions()
