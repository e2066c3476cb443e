"""The main job over two workers: who asks at one and who watches at the other see the same."""

from __future__ import annotations

import asyncio
import uuid

import msgspec
import pytest

from protocol.codec import decode_event
from protocol.room import RoomState, apply
from protocol.state import Snapshot
from tests.e2e.test_lab_sheet import QUESTION
from tests.support.labsheet_render import render_sheet
from tests.support.product import Product
from tests.support.raw_client import RawClient
from tests.support.workers import worker_with

pytestmark = pytest.mark.model


@pytest.fixture
def house(tmp_path, redis):
    running = Product(tmp_path / "house", "--workers", "2", "--redis", redis.url).start()
    yield running
    running.stop()


async def client_at_another(product: Product, room: str, taken: set[int]) -> RawClient:
    while True:
        client = await RawClient.open(f"ws://127.0.0.1:{product.port}/v1/rooms/{room}")
        if worker_with(product, client) not in taken:
            return client
        await client.close()


async def patiently(client: RawClient, *types: str, **fields) -> dict:
    async with asyncio.timeout(90):
        while True:
            try:
                return await client.hear(*types, **fields)
            except TimeoutError:
                continue


async def test_R21_a_sheet_sent_to_one_worker_is_read_marked_and_answered_at_both(house, redis):
    room = f"sheet-{uuid.uuid4().hex[:8]}"
    mei = await client_at_another(house, room, set())
    wu = await client_at_another(house, room, {worker_with(house, mei)})
    taken = [worker_with(house, mei), worker_with(house, wu)]
    await mei.hello("Mei")
    await wu.hello("Wu")
    sheet = render_sheet(11, "en")
    asset = (await mei.upload(sheet.png, name="sheet.png"))["asset"]
    await patiently(wu, "asset.read", asset=asset)
    await wu.say(type="ask", turn="t1", text=QUESTION, assets=[asset], max_tokens=40)
    done = await patiently(mei, "turn.done", turn="t1")
    await patiently(wu, "turn.done", turn="t1")
    assert mei.events() == wu.events() and mei.seqs() == list(range(1, done["seq"] + 1))
    marks = [e for e in wu.events() if e["type"] == "annotation.put"]
    assert len(marks) == len(sheet.out_of_range)

    hashes = set()
    for seen in ({taken[0]}, {taken[1]}):
        late = await client_at_another(house, room, seen)
        await late.hello("Late")
        snapshot = msgspec.convert(late.welcome["snapshot"], Snapshot)
        hashes.add(RoomState.from_snapshot(snapshot).hash())
        await late.close()
    folded = RoomState()
    with redis.client() as client:
        for _, fields in client.xrange(f"consilium:{{{room}}}:events"):
            apply(folded, decode_event(fields[b"f"]))
    assert hashes == {folded.hash()}
    for client in (mei, wu):
        await client.close()
