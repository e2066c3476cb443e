"""What a crash left half done is mended when the room is loaded again."""

from __future__ import annotations

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
