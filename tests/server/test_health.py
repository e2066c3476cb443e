"""Readiness is the truth; liveness asks nobody."""

from __future__ import annotations

import sqlite3

import httpx

from tests.support.scripted_engine import ScriptedEngine


async def get(server, path: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.base) as http:
        return await http.get(path)


async def test_ready_means_that_the_model_answers_and_the_log_writes(start):
    engine = ScriptedEngine()
    server = await start(engine)
    ready = await get(server, "/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    engine.ready = False
    assert (await get(server, "/readyz")).status_code == 503
    assert (await get(server, "/healthz")).status_code == 200


async def test_an_engine_that_is_away_is_not_ready(server):
    answer = await get(server, "/readyz")
    assert answer.status_code == 503
    assert answer.json()["engine"]["ready"] is False and answer.json()["engine"]["detail"]
    assert answer.json()["log"]["ready"] is True


async def test_a_log_that_cannot_be_written_is_not_ready(start):
    server = await start(ScriptedEngine())
    await get(server, "/readyz")
    other = sqlite3.connect(server.settings.folder / "consilium.sqlite3", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    answer = await get(server, "/readyz")
    assert answer.status_code == 503 and answer.json()["log"]["ready"] is False
    other.execute("COMMIT")
    other.close()
    assert (await get(server, "/readyz")).status_code == 200


async def test_a_draining_server_is_alive_and_not_ready(start):
    server = await start(ScriptedEngine())
    await server.server.drain.run()
    assert (await get(server, "/readyz")).status_code == 503
    assert (await get(server, "/healthz")).status_code == 200


async def test_a_heartbeat_says_whether_the_engine_is_ready(start):
    ready = await start(ScriptedEngine(), heartbeat_s=0.1)
    away = await start(heartbeat_s=0.1)
    beat = await (await ready.join()).hear("heartbeat")
    assert beat.get("engine_ready", True) is True
    assert (await (await away.join()).hear("heartbeat"))["engine_ready"] is False
