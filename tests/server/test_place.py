"""A connection's place: one moment between the snapshot and the events after it."""

from __future__ import annotations

import asyncio
import random


async def test_R40_whoever_joins_in_a_storm_of_ops_has_all_of_them_once(server):
    talker = await server.join("Wu")

    async def talk() -> None:
        for number in range(150):
            await talker.comment(f"c{number}")

    async def join(number: int):
        await asyncio.sleep(random.Random(number).random() * 0.5)
        return await server.join(f"Late{number}")

    joined = await asyncio.gather(*(join(n) for n in range(8)), talk())
    for late in joined[:8]:
        base = late.welcome["snapshot"]["seq"]
        await late.until(lambda c=late, b=base: b == 150 or c.seqs()[-1:] == [150])
        known = [comment["id"] for comment in late.welcome["snapshot"].get("comments", [])]
        known += [event["id"] for event in late.events()]
        assert known == [f"c{number}" for number in range(150)]


async def test_a_welcome_tells_the_limits_the_people_and_where_pictures_are(start):
    server = await start(max_asset_bytes=1_000, max_streams=3, credit_bytes=500, heartbeat_s=7)
    await server.join("Wu", department="Lab")
    welcome = (await server.join("Mei")).welcome
    limits = welcome["limits"]
    assert (limits["max_asset_bytes"], limits["max_streams"]) == (1_000, 3)
    assert (limits["initial_credit_bytes"], welcome["heartbeat_s"]) == (500, 7)
    assert {(p["name"], p.get("department")) for p in welcome["people"]} == {
        ("Wu", "Lab"),
        ("Mei", None),
    }
    assert welcome["media"]["base"] == "/v1/rooms/ward-7/assets"
    assert "open" in welcome["notices"][0]


async def test_a_full_room_says_so_and_lets_people_come_later(start):
    server = await start(max_members=1)
    mei = await server.join("Mei")
    late = await server.open()
    await late.say(type="hello", session="s" * 20, client="t")
    error = await late.hear("error")
    assert (error["code"], error["retry_after"] > 0) == ("room_full", True)
    assert await late.closed() == 4450
    assert (await mei.comment("c1"))["type"] == "ack"


async def test_R38_a_room_whose_log_cannot_be_read_is_not_shown_empty(start, tmp_path):
    folder = tmp_path / "house"
    folder.mkdir()
    (folder / "consilium.sqlite3").write_bytes(b"torn" * 5_000)
    server = await start(folder=folder)
    client = await server.open()
    await client.say(type="hello", session="s" * 20, client="t")
    assert (await client.hear("error"))["code"] == "unavailable"
    assert await client.closed() == 4450


async def test_a_small_model_is_said_to_be_one_and_a_chosen_one_is_not(start):
    def told(client):
        return " ".join(client.welcome["notices"])

    assert "check every sentence" in told(await (await start()).join("Mei"))
    assert "check every sentence" not in told(await (await start(model="/models/x")).join("Mei"))
