"""Each number answers its question."""

from __future__ import annotations

import httpx

from engine.api import EngineCode, EngineError, Stats
from tests.support.scripted_engine import ScriptedEngine


async def test_the_numbers_of_this_moment_are_read_when_asked(server):
    await server.join("Mei")
    await server.join("Wu", room="elsewhere")
    async with httpx.AsyncClient(base_url=server.base) as http:
        answer = await http.get("/metrics")
    samples = dict(line.split(" ") for line in answer.text.splitlines() if not line.startswith("#"))
    assert samples["consilium_connections"] == "2.0"
    assert samples["consilium_members"] == "2.0"
    assert samples["consilium_rooms"] == "2.0"
    assert samples["consilium_turns_running"] == "0.0"


class CountingEngine(ScriptedEngine):
    async def stats(self) -> Stats:
        if not self.ready:
            raise EngineError(EngineCode.ENGINE_LOST, "away")
        return Stats(gauges={"kv_bytes": 7.0}, counters={"turns_started": 3.0})


async def test_the_engines_numbers_are_told_and_missing_while_it_is_away(start):
    engine = CountingEngine()
    server = await start(engine)
    async with httpx.AsyncClient(base_url=server.base) as http:
        told = (await http.get("/metrics")).text.splitlines()
        engine.ready = False
        away = await http.get("/metrics")
    assert "consilium_engine_kv_bytes 7.0" in told
    assert "consilium_engine_turns_started_total 3.0" in told
    assert away.status_code == 200 and "consilium_engine" not in away.text
    assert "consilium_connections" in away.text
