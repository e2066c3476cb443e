"""What a crash left half done is mended when the room is loaded again."""

from __future__ import annotations

import asyncio

from tests.support.scripted_engine import ScriptedEngine


async def crash(server) -> None:
    """End the server's work in the middle: nothing is said to anybody."""
    await server.server._background.close()


async def test_a_turn_that_ran_in_an_earlier_life_is_marked_interrupted_once(start, tmp_path):
    engine = ScriptedEngine()
    first = await start(engine, folder=tmp_path / "house")
    mei = await first.join()
    engine.says("t1", "half an answer", done=False)
    await mei.say(type="ask", turn="t1", text="?")
    await mei.hear("turn.delta")
    await crash(first)
    await first.stop()
    for _ in range(2):
        again = await start(ScriptedEngine(), folder=tmp_path / "house")
        wu = await again.join("Wu")
        (turn,) = wu.welcome["snapshot"]["turns"]
        assert (turn["status"], turn["code"]) == ("failed", "turn_interrupted")
        assert turn["text"] == "half an answer"
        assert wu.welcome["head"] == wu.welcome["snapshot"]["seq"] == 4
        await again.stop()


async def test_a_turn_that_runs_is_left_alone_when_its_room_is_entered_again(start):
    engine = ScriptedEngine()
    server = await start(engine)
    mei = await server.join()
    engine.says("t1", "half", done=False)
    await mei.say(type="ask", turn="t1", text="?")
    await mei.hear("turn.delta")
    wu = await server.join("Wu")
    # What is still running goes out without its status, which is the default.
    assert wu.welcome["snapshot"]["turns"][0].get("status", "running") == "running"
    engine.says("t1", " more")
    assert await wu.hear("turn.done")


async def test_R10_a_turn_of_a_process_that_died_is_interrupted_when_its_lease_is_over(nodes):
    engine = ScriptedEngine()
    one, two = await nodes(engine, ScriptedEngine(), lease_s=0.5)
    mei, wu = await one.join("Mei"), await two.join("Wu")
    engine.says("t1", "half an answer", done=False)
    await mei.say(type="ask", turn="t1", text="?")
    await wu.hear("turn.delta")
    await asyncio.sleep(1.5)
    assert not [event for event in wu.events() if event["type"] == "turn.failed"]
    await crash(one)
    failed = await wu.hear("turn.failed")
    assert failed["code"] == "turn_interrupted"


async def test_a_process_that_lost_its_lease_in_a_long_pause_says_nothing_more(nodes, redis):
    engine = ScriptedEngine()
    one, two = await nodes(engine, ScriptedEngine(), lease_s=1_000)
    mei, wu = await one.join("Mei"), await two.join("Wu")
    engine.says("t1", "half", done=False)
    await mei.say(type="ask", turn="t1", text="?")
    await wu.hear("turn.delta")
    with redis.client() as client:
        client.delete("consilium:{ward-7}:lease:turn:t1")
    await wu.hear("turn.failed", turn="t1")
    engine.says("t1", " an answer")
    assert (await mei.comment("c1"))["type"] == "ack"
    await asyncio.sleep(0.3)
    texts = [event["text"] for event in wu.events() if event["type"] == "turn.delta"]
    assert texts == ["half"]


async def test_an_asset_whose_process_died_while_looking_is_looked_at_by_another(nodes):
    engines = [ScriptedEngine(), ScriptedEngine()]
    one, two = await nodes(*engines, lease_s=0.5)
    mei, wu = await one.join("Mei"), await two.join("Wu")
    closed = await mei.upload(b"some bytes", name="a.bin")
    await wu.hear("asset.committed", asset=closed["asset"])
    await mei.until(lambda: engines[0].opened)
    await crash(one)
    async with asyncio.timeout(10):
        while not engines[1].opened:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert engines[1].opened[0].id == closed["asset"]
