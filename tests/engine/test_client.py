"""The engine's process may die at any moment; its client never lets a request hang."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from engine.api import EngineCode, EngineError, Message, Turn, TurnDelta, TurnDone, TurnFailed
from engine.client import EngineClient, EngineSettings

pytestmark = pytest.mark.model

# Far above the 4 s of a quiet machine: a wait that ends is what is tested, not the speed.
START_S = 60.0


def ask(turn, session="s", length=16):
    messages = (Message(role="user", text="What is glucose?"),)
    return Turn(id=turn, session=session, tenant="c", messages=messages, max_new_tokens=length)


async def events_of(engine, turn):
    return [event async for event in engine.submit(turn)]


@pytest.fixture
def settings(embedded_model):
    return EngineSettings(models_cache=str(embedded_model.parent), has_perception=False)


@pytest.fixture
async def client(settings, tmp_path):
    made = EngineClient(tmp_path / "s", settings, ready_timeout_s=START_S)
    await made.start()
    yield made
    await made.stop()


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_client_loads_no_torch():
    code = "import sys, engine.client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.fault
async def test_kill_9_ends_every_turn_within_a_second_and_the_next_one_works(client):
    first = client.submit(ask("a", "s1", 400))
    async for event in first:
        if isinstance(event, TurnDelta):
            break
    waiting = asyncio.create_task(events_of(client, ask("b", "s2", 400)))
    await asyncio.sleep(0.1)
    os.kill(client.pid, signal.SIGKILL)
    killed = time.monotonic()
    rest = [event async for event in first]
    others = await waiting
    assert time.monotonic() - killed < 1.0
    for last in (rest[-1], others[-1]):
        assert isinstance(last, TurnFailed) and last.code is EngineCode.ENGINE_LOST
    with pytest.raises(EngineError) as lost:
        await client.health()
    assert lost.value.code is EngineCode.ENGINE_LOST
    assert isinstance((await events_of(client, ask("c")))[-1], TurnDone)
    assert (await client.health()).ready


@pytest.mark.fault
async def test_E20_E25_after_kill_9_a_conversation_goes_on_from_disk(settings, tmp_path):
    """Once without a kill, once with: what was restored is bit for bit what stayed."""
    kept = msgspec.structs.replace(settings, kv_folder=str(tmp_path / "kv"), kv_disk_floor_bytes=0)

    async def go_on(client, messages, turn):
        asked = Turn(id=turn, session="s", tenant="c", messages=messages, max_new_tokens=24)
        done = (await events_of(client, asked))[-1]
        assert isinstance(done, TurnDone)
        return done, (
            *messages,
            Message(role="assistant", text=done.text, turn=turn),
            ask("").messages[0],
        )

    answers = []
    for is_killed in (False, True):
        client = EngineClient(tmp_path / f"s{is_killed}", kept, ready_timeout_s=START_S)
        await client.start()
        try:
            first, talk = await go_on(client, ask("x").messages, "t1")
            if is_killed:
                async with asyncio.timeout(10):
                    while (await client.stats()).gauges["kv_staged_bytes"]:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                os.kill(client.pid, signal.SIGKILL)
                with pytest.raises(EngineError):
                    await client.health()
            second, _ = await go_on(client, talk, "t2")
            hits = (await client.stats()).counters.get("kv_disk_hits", 0)
            await client.drop("s")
        finally:
            await client.stop()
        answers.append((first.token_ids, second.token_ids, second.cached_tokens))
        assert hits == is_killed
    assert answers[0] == answers[1] and answers[0][2] > 24


async def test_a_second_client_shares_the_engine_and_leaving_harms_nobody(client, tmp_path):
    await client.wait_ready(START_S)
    guest = EngineClient(tmp_path / "s")
    await guest.start()
    await guest.wait_ready(START_S)
    mine, theirs = await asyncio.gather(
        events_of(client, ask("a", "s1")), events_of(guest, ask("b", "s2"))
    )
    assert mine[-1].token_ids == theirs[-1].token_ids
    stream = guest.submit(ask("d", "s4", 400))
    await anext(stream)
    await guest.stop()
    assert [type(event) async for event in stream][-1] is TurnFailed
    async with asyncio.timeout(5):
        while (await client.stats()).gauges["turns_running"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert isinstance((await events_of(client, ask("c")))[-1], TurnDone)


async def test_the_engine_ends_with_stop(client):
    await client.wait_ready(START_S)
    pid = client.pid
    await client.stop()
    assert not is_running(pid)


@pytest.mark.fault
async def test_the_engine_ends_when_its_parent_is_killed(settings, tmp_path):
    code = f"""
import asyncio, msgspec
from pathlib import Path
from engine.client import EngineClient, EngineSettings
async def main():
    settings = msgspec.json.decode({msgspec.json.encode(settings)!r}, type=EngineSettings)
    client = EngineClient(Path({str(tmp_path / "s")!r}), settings)
    await client.start()
    await client.wait_ready({START_S})
    print(client.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    pid = int(await parent.stdout.readline())
    assert is_running(pid)
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(5):
        while is_running(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_an_engine_that_cannot_start_says_why_and_requests_do_not_hang(tmp_path):
    settings = EngineSettings(models_cache=str(tmp_path), has_perception=False)
    client = EngineClient(tmp_path / "s", settings, ready_timeout_s=8.0)
    await client.start()
    try:
        last = (await events_of(client, ask("a")))[-1]
        assert isinstance(last, TurnFailed) and last.code is EngineCode.ENGINE_LOST
        assert "consilium models pull" in last.message
    finally:
        await client.stop()


async def test_the_engine_tells_the_stages_of_its_start(settings, tmp_path):
    stages = []
    client = EngineClient(tmp_path / "s", settings, on_stage=stages.append)
    await client.start()
    await client.wait_ready(START_S)
    await client.stop()
    assert stages == ["libraries", "weights", "tokenizer", "first token", "ready"]


@pytest.mark.fault
async def test_an_engine_that_hangs_is_given_up_and_its_turns_end(settings, tmp_path):
    """A stopped process keeps its socket open; only the unanswered probe tells."""
    client = EngineClient(tmp_path / "s", settings, ready_timeout_s=START_S, hangs_after_s=1.0)
    await client.start()
    try:
        stream = client.submit(ask("a", "s1", 400))
        async for event in stream:
            if isinstance(event, TurnDelta):
                break
        os.kill(client.pid, signal.SIGSTOP)
        async with asyncio.timeout(4):
            rest = [event async for event in stream]
        assert isinstance(rest[-1], TurnFailed) and rest[-1].code is EngineCode.ENGINE_LOST
    finally:
        await client.stop()


async def test_a_far_end_that_speaks_garbage_is_left_and_tried_again(tmp_path):
    visits = []

    async def babble(reader, writer):
        visits.append(writer)
        writer.write(b"\x00\x00\x00\x04what")

    async with await asyncio.start_unix_server(babble, tmp_path / "s"):
        client = EngineClient(tmp_path / "s", ready_timeout_s=2.0)
        await client.start()
        try:
            async with asyncio.timeout(5):
                while len(visits) < 2:
                    last = (await events_of(client, ask("a")))[-1]
                    assert isinstance(last, TurnFailed) and last.code is EngineCode.ENGINE_LOST
        finally:
            await client.stop()
            for writer in visits:
                writer.close()
