"""The log cannot be written for a while: nothing is called saved, nobody is lost."""

from __future__ import annotations

import contextlib
import sqlite3

import httpx
import pytest

from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.fault


@contextlib.contextmanager
def held(server):
    """Hold the log's file as another process that writes it would."""
    path = server.settings.folder / "consilium.sqlite3"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


async def test_acts_are_refused_while_the_log_is_away_and_taken_afterwards(start):
    engine = ScriptedEngine()
    server = await start(engine)
    mei, wu = await server.join("Mei"), await server.join("Wu")
    assert (await mei.comment("c1"))["type"] == "ack"
    engine.says("t1", "half ", done=False)
    await mei.say(type="ask", turn="t1", text="?")
    await mei.hear("turn.delta")
    with held(server):
        for number in range(3):
            op = {"type": "comment.add", "id": f"away{number}", "text": "x"}
            await mei.say(type="op", op_id=f"away{number}", op=op)
        refused = [await mei.answer(f"away{number}") for number in range(3)]
        assert [nack.get("code") for nack in refused] == ["unavailable"] * 3
        assert all(nack["retry_after"] > 0 for nack in refused)
        engine.says("t1", "whole")
        late = await server.join("Late")
        assert [c["id"] for c in late.welcome["snapshot"]["comments"]] == ["c1"]
    mei.heard.clear()
    assert (await mei.comment("away0"))["type"] == "ack"
    await wu.hear("turn.done")
    assert wu.seqs() == list(range(1, wu.seqs()[-1] + 1))
    async with httpx.AsyncClient(base_url=server.base) as http:
        assert (await http.get("/readyz")).status_code == 200
