"""Questions and answers against an engine that does what a test says."""

from __future__ import annotations

import asyncio
import time

import pytest

from engine import api
from server.auth import make_token
from tests.support.scripted_engine import ScriptedEngine

SECRET = "s" * 32
ENDS = ("turn.done", "turn.cancelled", "turn.failed")


@pytest.fixture
def engine():
    return ScriptedEngine()


def token(participant: str, role: str) -> str:
    until = time.time() + 60
    return make_token(
        SECRET, room="ward-7", participant=participant, name="x", role=role, expires_at=until
    )


def ends(client, turn: str) -> list[dict]:
    return [e for e in client.events() if e["type"] in ENDS and e["turn"] == turn]


def text(client, turn: str) -> str:
    return "".join(
        e["text"] for e in client.events() if e["type"] == "turn.delta" and e["turn"] == turn
    )


async def ask(client, turn: str, question: str = "what?", **fields) -> dict:
    await client.say(type="ask", turn=turn, text=question, **fields)
    return await client.answer(turn)


async def test_an_answer_streams_to_everybody_under_numbers(start, engine):
    server = await start(engine)
    mei, wu = await server.join("Mei"), await server.join("Wu")
    engine.says("t1", "Glu", "cose ", "is high.")
    assert (await ask(mei, "t1"))["type"] == "ack"
    done = await wu.hear("turn.done")
    assert text(wu, "t1") == text(mei, "t1") == "Glucose is high."
    offsets = [e["offset"] for e in wu.events() if e["type"] == "turn.delta"]
    assert offsets == sorted(set(offsets)) and offsets[0] == 0
    assert done["answer_tokens"] == 3
    assert wu.seqs() == list(range(1, wu.seqs()[-1] + 1))


async def test_the_same_question_again_is_the_same_turn_and_another_is_refused(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    engine.says("t1", "yes")
    first = await ask(mei, "t1")
    await mei.hear("turn.done")
    mei.heard.clear()
    assert await ask(mei, "t1") == first
    mei.heard.clear()
    assert (await ask(mei, "t1", "another?"))["code"] == "turn_exists"
    wu = await server.join("Wu")
    assert (await ask(wu, "t1"))["code"] == "turn_exists"
    assert len(engine.asked) == 1


async def test_a_cancelled_turn_ends_at_once_and_keeps_what_was_delivered(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    engine.says("t1", "half an ans", done=False)
    await ask(mei, "t1")
    await mei.hear("turn.delta")
    await mei.say(type="cancel", turn="t1")
    cancelled = await mei.hear("turn.cancelled")
    assert cancelled.get("reason", "person") == "person"
    assert text(mei, "t1") == "half an ans"
    await mei.until(lambda: engine.closed_turns == ["t1"])


async def test_L08_a_cancel_in_the_moment_of_the_end_makes_one_end(start, engine):
    server = await start(engine, room_turns=100)
    mei = await server.join("Mei")
    for number in range(30):
        turn = f"t{number}"
        engine.says(turn, "a", "b")
        await mei.say(type="ask", turn=turn, text="?")
        for _ in range(number):
            await asyncio.sleep(0.002)
        await mei.say(type="cancel", turn=turn)
        await mei.until(lambda t=turn: ends(mei, t))
    await mei.comment("c1")
    assert all(len(ends(mei, f"t{number}")) == 1 for number in range(30))


async def test_L10_a_cancel_of_nothing_is_a_small_error(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    await mei.say(type="cancel", turn="none")
    error = await mei.hear("error")
    assert (error["code"], error["ref"], error.get("fatal", False)) == (
        "turn_unknown",
        "none",
        False,
    )
    assert (await mei.comment("c1"))["type"] == "ack"


async def test_a_barge_in_ends_the_turn_and_the_model_hears_what_was_delivered(start, engine):
    server = await start(engine)
    mei = await server.join("Mei", department="Radiology")
    engine.says("t1", "The glucose", done=False)
    await ask(mei, "t1", "one?")
    await mei.hear("turn.delta")
    engine.says("t2", "sorry")
    await ask(mei, "t2", "two?", interrupts="t1")
    await mei.hear("turn.done", turn="t2")
    assert (await mei.hear("turn.cancelled"))["reason"] == "barge_in"
    said = [(m.role, m.text, m.speaker, m.turn) for m in engine.asked[1].messages]
    assert said == [
        ("user", "one?", "Mei (Radiology)", None),
        ("assistant", "The glucose", "", "t1"),
        ("user", "two?", "Mei (Radiology)", None),
    ]


async def test_interrupting_what_never_was_is_refused_and_what_is_over_is_not(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    assert (await ask(mei, "t1", interrupts="none"))["code"] == "turn_unknown"
    engine.says("t2", "x")
    await ask(mei, "t2")
    await mei.hear("turn.done")
    engine.says("t3", "y")
    assert (await ask(mei, "t3", interrupts="t2"))["type"] == "ack"
    assert await mei.hear("turn.done", turn="t3")


async def test_turns_of_a_room_are_answered_in_order_and_of_two_rooms_at_once(start, engine):
    server = await start(engine)
    mei, wu = await server.join("Mei"), await server.join("Wu", room="elsewhere")
    engine.says("t1", "slow", done=False)
    engine.says("t2", "second")
    engine.says("t3", "other")
    await ask(mei, "t1")
    await ask(mei, "t2")
    await ask(wu, "t3")
    await wu.hear("turn.done", turn="t3")
    assert [turn.id for turn in engine.asked] == ["t1", "t3"]
    await mei.say(type="cancel", turn="t1")
    await mei.hear("turn.done", turn="t2")


async def test_L03_an_answer_survives_its_askers_disconnect(start, engine):
    server = await start(engine)
    mei, wu = await server.join("Mei"), await server.join("Wu")
    engine.says("t1", "before ", done=False)
    await ask(mei, "t1")
    mei.cut()
    engine.says("t1", "after")
    await wu.hear("turn.done")


async def test_a_lost_engine_fails_the_turn_and_the_next_one_works(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    engine.says("t1", "half", done=False)
    lost = api.TurnFailed(turn="t1", code=api.EngineCode.ENGINE_LOST, message="gone")
    engine.script("t1").put_nowait(lost)
    await ask(mei, "t1")
    assert (await mei.hear("turn.failed"))["code"] == "engine_lost"
    engine.script("t2").put_nowait(None)
    await ask(mei, "t2")
    assert (await mei.hear("turn.failed", turn="t2"))["code"] == "engine_lost"
    engine.says("t3", "whole")
    await ask(mei, "t3")
    assert await mei.hear("turn.done")


async def test_an_engine_that_never_comes_fails_the_turn(server):
    mei = await server.join("Mei")
    await ask(mei, "t1")
    assert (await mei.hear("turn.failed"))["code"] == "engine_lost"


async def test_a_room_takes_only_so_many_questions(start, engine):
    server = await start(engine, room_turns=2)
    mei = await server.join("Mei")
    answers = [await ask(mei, f"t{number}") for number in range(3)]
    assert [a["type"] for a in answers] == ["ack", "ack", "nack"]
    assert answers[2]["code"] == "overloaded" and answers[2]["retry_after"] > 0


async def test_a_turn_waits_for_perception_but_not_for_ever(start, engine):
    server = await start(engine, perception_wait_s=0.3)
    mei = await server.join("Mei")
    asset = (await mei.upload(b"picture"))["asset"]
    engine.says("t1", "blind")
    await ask(mei, "t1", assets=[asset])
    prompted = await mei.hear("turn.prompted")
    assert prompted["missing"] == [asset]
    assert engine.asked[0].messages[0].seen[0].missing
    engine.look(asset).put_nowait(api.Completed(media=asset))
    await mei.hear("asset.read")
    engine.says("t2", "seeing")
    await ask(mei, "t2")
    await mei.hear("turn.done", turn="t2")
    assert [seen.missing for seen in engine.asked[1].messages[-1].seen] == [False]


async def test_a_question_about_an_asset_of_nowhere_is_refused(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    assert (await ask(mei, "t1", assets=["nowhere"]))["code"] == "asset_unknown"


async def test_a_cancel_while_the_turn_waits_for_a_picture_ends_it(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    asset = (await mei.upload(b"picture"))["asset"]
    await ask(mei, "t1", assets=[asset])
    await mei.say(type="cancel", turn="t1")
    await mei.hear("turn.cancelled")
    assert engine.asked == []


async def test_what_the_model_knows_is_brought_near_before_somebody_asks(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    for _ in range(3):
        await mei.say(type="presence", typing=True)
    await mei.comment("c1")
    await mei.say(type="presence", typing=False)
    await mei.say(type="presence", typing=True)
    await mei.comment("c2")
    assert engine.prefetched == ["ward-7"] * 3
    engine.says("t1", "yes")
    await ask(mei, "t1")
    await mei.hear("turn.done")
    assert len(engine.prefetched) == 4


async def test_who_may_not_ask_has_nothing_brought_near(start, engine):
    server = await start(engine, secret=SECRET)
    watcher = await server.join("Wu", token=token("p-wu", "observer"))
    await watcher.say(type="presence", typing=True)
    mei = await server.join("Mei", token=token("p-mei", "member"))
    await mei.comment("c1")
    assert engine.prefetched == ["ward-7"]


async def test_an_engine_that_is_away_is_nobodys_fault_when_somebody_types(start, engine):
    async def away(session: str) -> None:
        engine.prefetched.append(session)
        raise api.EngineError(api.EngineCode.ENGINE_LOST, "away")

    engine.prefetch = away
    server = await start(engine)
    mei = await server.join("Mei")
    await mei.say(type="presence", typing=True)
    assert (await mei.comment("c1"))["type"] == "ack"
    assert engine.prefetched == ["ward-7"] * 2


async def test_a_schema_a_temperature_and_a_seed_reach_the_engine(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    engine.says("t1", "{}")
    await ask(mei, "t1", json_schema="{}", temperature=0.5, seed=7)
    await mei.hear("turn.done")
    asked = engine.asked[0]
    assert (asked.json_schema, asked.temperature, asked.seed) == ("{}", 0.5, 7)


async def test_the_end_says_how_sure_the_model_was(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    engine.says("t1", "yes", done=False)
    done = api.TurnDone(
        turn="t1",
        text="yes",
        token_ids=(1, 2),
        finish="stop",
        prompt_tokens=1,
        cached_tokens=0,
        timings={},
        confidences=(0.9, 0.4),
    )
    engine.script("t1").put_nowait(done)
    await ask(mei, "t1")
    assert (await mei.hear("turn.done"))["confidence"] == 0.6
