"""Leaving well; see the fourth trap: uvicorn's own shutdown comes too late for goodbyes."""

from __future__ import annotations

import asyncio
import time

from tests.support.scripted_engine import ScriptedEngine


async def test_trap4_everybody_is_told_before_the_sockets_close(start):
    server = await start()
    clients = [await server.join(f"P{n}") for n in range(10)]
    await server.server.drain.run()
    waits = [(await client.hear("goaway"))["retry_after"] for client in clients]
    assert {await client.closed() for client in clients} == {4453}
    assert min(waits) >= 1 and len(set(waits)) > 5, "R53: not all in the same second"


async def test_L28_an_answer_under_way_is_finished_first(start):
    engine = ScriptedEngine()
    server = await start(engine, drain_s=5)
    mei = await server.join()
    engine.says("t1", "the end", done=False)
    await mei.say(type="ask", turn="t1", text="?")
    await mei.hear("turn.delta")
    draining = asyncio.create_task(server.server.drain.run())
    await mei.hear("goaway")
    engine.says("t1")
    await draining
    assert await mei.closed() == 4453
    assert [e["type"] for e in mei.events()][-1] == "turn.done"


async def test_a_turn_that_does_not_end_in_time_is_marked_interrupted(start):
    engine = ScriptedEngine()
    server = await start(engine, drain_s=0.2)
    mei = await server.join()
    engine.says("t1", "for ever", done=False)
    await mei.say(type="ask", turn="t1", text="?")
    await mei.hear("turn.delta")
    await server.server.drain.run()
    await mei.closed()
    failed = [e for e in mei.events() if e["type"] == "turn.failed"]
    assert [e["code"] for e in failed] == ["turn_interrupted"]


async def test_who_comes_during_the_drain_is_sent_to_come_back(start):
    engine = ScriptedEngine()
    server = await start(engine, drain_s=5)
    mei = await server.join()
    engine.says("t1", "x", done=False)
    await mei.say(type="ask", turn="t1", text="?")
    await mei.hear("turn.delta")
    draining = asyncio.create_task(server.server.drain.run())
    await mei.hear("goaway")
    late = await server.open()
    await late.say(type="hello", session="s" * 20, client="t")
    error = await late.hear("error")
    assert (error["code"], error["retry_after"] > 0) == ("draining", True)
    assert await late.closed() == 4453
    engine.says("t1")
    await draining


async def test_an_idle_server_drains_at_once(start):
    server = await start()
    began = time.monotonic()
    await server.server.drain.run()
    await server.server.drain.run()
    assert time.monotonic() - began < 0.5
