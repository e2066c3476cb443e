"""Workers and Redis are killed in the middle of their work; nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

import httpx
import pytest

import consilium
from protocol.codec import decode_event
from protocol.errors import ErrorCode
from protocol.messages import AddComment
from tests.support.product import Product
from tests.support.raw_client import RawClient
from tests.support.redis_server import RedisServer
from tests.support.workers import worker_with, workers_of

pytestmark = [pytest.mark.fault]

# Three in every run of the tests, twenty in `make soak`.
ROUNDS = int(os.environ.get("CONSILIUM_SOAK_ROUNDS", "3"))
ACTS = 60
PEOPLE = 4
LONG_QUESTION = "Write a long and detailed essay about glucose, its role and its measurement."


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """Two workers and a Redis of their own."""
    redis = RedisServer(tmp_path_factory.mktemp("redis")).start()
    folder = tmp_path_factory.mktemp("house")
    product = Product(
        folder, "--workers", "2", "--redis", redis.url, env={"CONSILIUM_LEASE_S": "5"}
    )
    product.start()
    yield product, redis
    product.stop()
    redis.stop()


async def persist(room, act: str) -> int:
    """Do an act as a client does that keeps what was not acknowledged."""
    while True:
        try:
            return await room.do(AddComment(id=act, text="x"), op_id=act)
        except consilium.Refused as refusal:
            assert refusal.code in (ErrorCode.UNAVAILABLE, ErrorCode.OVERLOADED)
            await asyncio.sleep(0.1)


async def talk(room, name: str, draw: random.Random) -> list[tuple[str, int]]:
    acknowledged = []
    for number in range(ACTS):
        act = f"{name}-{number}"
        acknowledged.append((act, await persist(room, act)))
        await asyncio.sleep(draw.random() * 0.08)
    return acknowledged


async def disturb(product: Product, redis: RedisServer, draw: random.Random) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0.5 + draw.random())
    os.kill(draw.choice(workers_of(product.pid)).pid, signal.SIGKILL)
    await asyncio.sleep(draw.random())
    redis.kill()
    await asyncio.sleep(draw.random())
    await loop.run_in_executor(None, redis.start)


@pytest.mark.model
@pytest.mark.parametrize("seed", range(1, ROUNDS + 1))
async def test_R10_no_acknowledged_act_is_lost_doubled_or_reordered(house, seed):
    product, redis = house
    draw, name = random.Random(seed), f"round-{seed}"
    url = f"ws://127.0.0.1:{product.port}"
    async with asyncio.timeout(60):
        rooms = [await consilium.connect(url, room=name, name=f"P{n}") for n in range(PEOPLE)]
        talking = [talk(room, f"p{n}", random.Random(seed + n)) for n, room in enumerate(rooms)]
        *said, _ = await asyncio.gather(*talking, disturb(product, redis, draw))
        with redis.client() as client:
            entries = client.xrange(f"consilium:{{{name}}}:events")
        events = [decode_event(fields[b"f"]) for _, fields in entries]
        numbers = {event.op_id: event.seq for event in events}
        assert [event.seq for event in events] == list(range(1, PEOPLE * ACTS + 1))
        assert len(numbers) == PEOPLE * ACTS
        for acknowledged in said:
            assert [numbers[act] for act, _ in acknowledged] == [seq for _, seq in acknowledged]
            assert [seq for _, seq in acknowledged] == sorted(seq for _, seq in acknowledged)
        for room in rooms:
            await room.until(lambda room=room: room.state.seq == PEOPLE * ACTS)
        assert len({room.state.hash() for room in rooms}) == 1
        for room in rooms:
            await room.close()


async def join_both(product: Product, room: str) -> tuple[RawClient, RawClient]:
    """Two clients at two workers."""
    clients: dict[int, RawClient] = {}
    while len(clients) < 2:
        client = await RawClient.open(f"ws://127.0.0.1:{product.port}/v1/rooms/{room}")
        worker = worker_with(product, client)
        if worker in clients:
            await client.close()
        else:
            clients[worker] = client
    one, two = clients.values()
    await one.hello("Mei")
    await two.hello("Wu")
    return one, two


async def patiently(client: RawClient, *types: str, **fields) -> dict:
    async with asyncio.timeout(40):
        while True:
            try:
                return await client.hear(*types, **fields)
            except TimeoutError:
                continue


@pytest.mark.model
async def test_a_turn_whose_worker_was_killed_is_interrupted_for_the_others(house):
    product, _ = house
    product.wait_ready()
    mei, wu = await join_both(product, "interrupted")
    await mei.say(type="ask", turn="t1", text=LONG_QUESTION, max_tokens=1_000)
    delta = await patiently(wu, "turn.delta")
    began = time.monotonic()
    os.kill(worker_with(product, mei), signal.SIGKILL)
    failed = await patiently(wu, "turn.failed", turn="t1")
    assert failed["code"] == "turn_interrupted" and time.monotonic() - began < 15
    assert (await wu.comment("still-here"))["seq"] > delta["seq"]
    await wu.say(type="ask", turn="t2", text="What is glucose?", max_tokens=8)
    await patiently(wu, "turn.done", turn="t2")
    for client in (mei, wu):
        await client.close()


@pytest.mark.model
async def test_while_redis_is_away_it_is_said_and_nothing_is_acknowledged(house):
    product, redis = house
    mei, wu = await join_both(product, "degraded")
    assert (await mei.comment("c1"))["type"] == "ack"
    redis.kill()
    refused = await mei.comment("c2")
    assert (refused["type"], refused["code"]) == ("nack", "unavailable")
    assert refused["retry_after"] > 0
    async with httpx.AsyncClient(base_url=product.base, timeout=10) as http:
        readyz = await http.get("/readyz")
        assert readyz.status_code == 503 and readyz.json()["log"]["ready"] is False
        assert (await http.get("/healthz")).status_code == 200
    await asyncio.get_running_loop().run_in_executor(None, redis.start)
    await asyncio.get_running_loop().run_in_executor(None, product.wait_ready)
    await mei.say(type="op", op_id="c2", op={"type": "comment.add", "id": "c2", "text": "hello"})
    assert (await mei.hear("ack", op_id="c2"))["seq"] == 2
    assert (await wu.hear("comment.add", id="c2"))["seq"] == 2
    for client in (mei, wu):
        await client.close()
