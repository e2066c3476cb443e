"""Each number answers its question."""

from __future__ import annotations

import httpx


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
