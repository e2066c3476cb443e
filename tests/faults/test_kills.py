"""Processes are killed in the middle of their work, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess

import pytest

from tests.support.labsheet_render import render_sheet
from tests.support.product import Product
from tests.support.raw_client import RawClient
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.fault, pytest.mark.model]

PATIENCE_S = 60.0
LONG_QUESTION = "Write a long and detailed essay about glucose, its role and its measurement."


@pytest.fixture(params=["one process", "two workers"])
def product(request, tmp_path):
    """Once over SQLite, once as two workers over Redis with people at different workers."""
    if request.param == "one process":
        running = Product(tmp_path / "house").start()
        yield running
        running.stop()
        return
    redis = RedisServer(tmp_path / "redis").start()
    running = Product(tmp_path / "house", "--workers", "2", "--redis", redis.url)
    running.start_switched()
    yield running
    running.stop()
    redis.stop()


def restart(product: Product) -> None:
    """Start again as it was started, without waiting for the model."""
    if product.is_switched:
        product.start_switched(ready=False)
    else:
        product.start(ready=False)


async def join(product: Product, name: str, **hello) -> RawClient:
    client = await RawClient.open(f"ws://127.0.0.1:{product.port}/v1/rooms/ward-7")
    await client.hello(name, **hello)
    return client


async def patiently(client: RawClient, *types: str, **fields) -> dict:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await client.hear(*types, **fields)
            except TimeoutError:
                continue


def children(pid: int) -> list[tuple[int, str]]:
    """The processes that a process started, with their command lines."""
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,command="], capture_output=True, text=True, check=True
    )
    processes = [line.split(None, 2) for line in listing.stdout.splitlines()]
    return [(int(own), line) for own, parent, line in processes if int(parent) == pid]


def engine_of(product: Product) -> int:
    (engine,) = [pid for pid, line in children(product.pid) if "engine.process" in line]
    return engine


async def test_a_killed_server_has_every_acknowledged_op_once_and_its_turn_is_interrupted(product):
    mei = await join(product, "Mei", session="session-of-mei-0001")
    await mei.say(type="ask", turn="t1", text=LONG_QUESTION, max_tokens=1_000)
    await patiently(mei, "turn.delta")
    acknowledged = []
    for number in range(50):
        ack = await mei.comment(f"c{number}")
        assert ack["type"] == "ack"
        acknowledged.append((f"c{number}", ack["seq"]))
    assert not [e for e in mei.events() if e["type"] in ("turn.done", "turn.failed")]
    product.kill()
    await mei.closed()

    restart(product)
    fresh = await join(product, "Wu")
    state = fresh.welcome["snapshot"]
    kept = [(comment["id"], comment["seq"]) for comment in state["comments"]]
    assert kept == acknowledged
    (turn,) = state["turns"]
    if "status" not in turn:
        # With several workers the lease of the one that was killed has to end first.
        turn |= await patiently(fresh, "turn.failed", turn="t1") | {"status": "failed"}
    assert (turn["status"], turn["code"]) == ("failed", "turn_interrupted")
    delivered = "".join(e["text"] for e in mei.events() if e["type"] == "turn.delta")
    assert turn["text"].startswith(delivered)

    position = {"epoch": mei.welcome["epoch"], "seq": mei.seqs()[-1]}
    back = await join(product, "Mei", session="session-of-mei-0001", resume=position)
    assert back.welcome.get("snapshot") is None
    again = await back.comment("c49")
    assert again["seq"] == acknowledged[-1][1], "sent again, it has its first number"
    for client in (mei, fresh, back):
        await client.close()


async def test_a_killed_engine_fails_its_turn_and_the_next_one_works(product):
    mei, wu = await join(product, "Mei"), await join(product, "Wu")
    await mei.say(type="ask", turn="t1", text=LONG_QUESTION, max_tokens=1_000)
    await patiently(mei, "turn.delta")
    os.kill(engine_of(product), signal.SIGKILL)
    assert (await patiently(wu, "turn.failed"))["code"] == "engine_lost"
    assert (await wu.comment("c1"))["type"] == "ack"
    await wu.say(type="ask", turn="t2", text="What is glucose?", max_tokens=8)
    await patiently(wu, "turn.done", turn="t2")
    for client in (mei, wu):
        await client.close()


async def test_a_killed_decoder_costs_one_upload_and_the_next_one_is_read(product):
    sheet = render_sheet(11, "en").png
    mei = await join(product, "Mei")
    closed = await mei.upload(sheet, name="sheet.png")
    await patiently(mei, "asset.detected", asset=closed["asset"])
    workers = children(engine_of(product))
    assert workers, "decoding happens in processes of the engine"
    for pid, _ in workers:
        os.kill(pid, signal.SIGKILL)
    failed = await patiently(mei, "asset.failed", "asset.read", asset=closed["asset"])
    assert (failed["type"], failed["code"]) == ("asset.failed", "decoder_lost")
    again = await mei.upload(sheet, stream=2, name="sheet.png")
    await patiently(mei, "asset.read", asset=again["asset"])
    await mei.close()


async def test_L03_a_cancelled_answer_frees_the_engine_for_the_next(product):
    mei = await join(product, "Mei")
    await mei.say(type="ask", turn="t1", text=LONG_QUESTION, max_tokens=1_000)
    await patiently(mei, "turn.delta")
    await mei.say(type="cancel", turn="t1")
    await patiently(mei, "turn.cancelled")
    await mei.say(type="ask", turn="t2", text="What is glucose?", max_tokens=8)
    done = await patiently(mei, "turn.done", turn="t2")
    assert done["timings"]["queued"] < 5
    await mei.close()


async def test_a_drain_by_sigterm_says_goodbye_and_ends_the_engine(product):
    mei = await join(product, "Mei")
    await mei.comment("c1")
    web, engine = product.pid, engine_of(product)
    stopping = asyncio.get_running_loop().run_in_executor(None, product.stop)
    assert (await mei.hear("goaway"))["retry_after"] > 0
    assert await mei.closed() == 4453
    await stopping
    with pytest.raises(ProcessLookupError):
        os.kill(engine, 0)
    assert children(web) == []
