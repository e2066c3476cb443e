"""The engine's events as the room's."""

from __future__ import annotations

import hashlib

import pytest

from engine import api
from server.answer import Answer, failure, merged
from server.turn_records import SqliteTurnRecords


def delta(offset: int, text: str, *spans: api.Span) -> api.TurnDelta:
    return api.TurnDelta(turn="t", offset=offset, text=text, spans=spans)


def test_deltas_that_follow_each_other_are_one_and_keep_their_place():
    span = api.Span(start=4, end=6, kind="number")
    link = api.TurnAnnotation(
        turn="t", start=0, end=1, media="a", observation="a.1", box=api.Box(0, 0, 1, 1)
    )
    events = list(merged([delta(0, "ab"), delta(2, "cd", span), link, delta(4, "ef")]))
    assert events == [delta(0, "abcd", span), link, delta(4, "ef")]
    assert list(merged([])) == []


@pytest.fixture
async def told(room, database):
    """A room with a turn, and an answer that is written into it."""
    from protocol.events import TurnStarted
    from protocol.shapes import Actor

    mei = Actor(id="mei", name="Mei")
    await room.record(TurnStarted(at=1, actor=mei, turn="t", question="?"))
    return room, SqliteTurnRecords(database)


async def test_an_answer_is_recorded_with_its_prompt_tokens_and_hash(told, room_log):
    room, records = told
    answer = Answer(room, records, "t", ("a",), lambda: 5)
    started = api.TurnStarted(
        turn="t", model="m", prompt="the prompt", prompt_tokens=2, cached_tokens=1, sight="text"
    )
    assert not await answer.write([started, delta(0, "糖化")])
    done = api.TurnDone(
        turn="t",
        text="糖化血红蛋白",
        token_ids=(7, 8),
        finish="stop",
        prompt_tokens=2,
        cached_tokens=1,
        timings={"total": 1.0},
    )
    assert await answer.write([delta(2, "血红蛋白"), done])
    head = await room_log.head("ward-7")
    page = await room_log.page("ward-7", head.epoch, 1, max_events=9, max_bytes=9**9)
    prompted, first, second, last = (each.event for each in page.events)
    assert (prompted.prompt_sha256, prompted.missing) == (
        hashlib.sha256(b"the prompt").hexdigest(),
        ("a",),
    )
    assert (first.text + second.text, second.offset) == ("糖化血红蛋白", 2)
    assert last.text_sha256 == hashlib.sha256("糖化血红蛋白".encode()).hexdigest()
    record = await records.find("ward-7", "t")
    assert (record.prompt, record.text, record.token_ids) == ("the prompt", "糖化血红蛋白", (7, 8))


async def test_every_end_of_a_turn_is_one_act(told):
    room, _ = told
    from protocol.errors import ErrorCode

    for code in (ErrorCode.ENGINE_LOST, ErrorCode.TURN_INTERRUPTED):
        await room.record(failure("t", 1, code, "x"))
    turn = await room.between(lambda state: state.turns["t"])
    assert (turn.code, room.head.seq) == (ErrorCode.ENGINE_LOST, 2)


async def test_the_engines_own_cancel_without_anybody_asking_is_no_end(told):
    room, records = told
    answer = Answer(room, records, "t", (), lambda: 5)
    assert not await answer.write([api.TurnCancelled(turn="t", token_ids=())])
    assert (await room.between(lambda state: state.turns["t"])).status == "running"
