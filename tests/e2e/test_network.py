"""The network goes away in the middle of work and comes back as another one."""

from __future__ import annotations

import asyncio
import hashlib
import uuid

import pytest
from playwright.async_api import expect

import consilium
from tests.support.gate import Gate
from tests.support.labsheet_render import photo
from tests.support.page import Visitor

BYTES = 8 * 1024 * 1024


def new_room() -> str:
    return f"network-{uuid.uuid4().hex[:8]}"


def state_of(product, room: str, name: str = "Dr Eve"):
    return consilium.connect(f"ws://127.0.0.1:{product.port}", room=room, name=name)


async def test_R57_the_asyncio_client_goes_on_with_an_upload_over_three_networks(product):
    content, room = photo(3264, 2448, target_bytes=BYTES), new_room()
    async with Gate(product.port) as gate:
        async with consilium.connect(gate.base, room=room, name="Dr Wu") as wu:
            gate.cut_after(len(content) // 3, 2 * len(content) // 3)
            uploading = asyncio.create_task(wu.upload(content, name="photo.jpg"))
            for number in range(40):
                await wu.comment(f"note {number}")
            asset = await uploading
            assert gate.cuts == 2
            # What the server held before a cut was not sent again, but for what was on its way.
            assert gate.sent_bytes < len(content) + 3 * 1024 * 1024
            async with state_of(product, room) as eve:
                await eve.until(lambda: eve.state.seq >= wu.state.seq)
                kept = eve.state.assets[asset]
                assert kept.sha256 == hashlib.sha256(content).hexdigest()
                texts = [comment.text for comment in eve.state.comments.values()]
                assert texts == [f"note {number}" for number in range(40)]


@pytest.mark.browser
async def test_a_page_loses_its_network_in_an_upload_and_while_somebody_draws(browser, product):
    content, room = photo(3264, 2448, target_bytes=BYTES), new_room()
    async with Gate(product.port) as gate:
        wu = await Visitor.arrive(browser, gate.base, room, "Dr Wu", "Radiology")
        gate.cut_after(len(content) // 2)
        await wu.drop("photo.jpg", content, "image/jpeg")
        assert gate.cuts == 1
        assert gate.sent_bytes < len(content) + 3 * 1024 * 1024
        await wu.at("tool-rectangle").click()
        for number in range(6):
            share = 0.1 + 0.12 * number
            await wu.drag((share, 0.2), (share + 0.08, 0.4))
            await wu.at("question").fill(f"note {number}")
            await wu.at("comment-send").click()
            if number == 2:
                gate.cut()
        await wu.is_connected()
        async with state_of(product, room) as eve:
            await eve.until(
                lambda: len(eve.state.comments) == 6 and len(eve.state.annotations) == 6
            )
            texts = [comment.text for comment in eve.state.comments.values()]
            assert texts == [f"note {number}" for number in range(6)]
            boxes = [mark.annotation.shape.x for mark in eve.state.annotations.values()]
            assert boxes == sorted(boxes), "in the order in which they were drawn"
            (asset,) = eve.state.assets.values()
            assert asset.sha256 == hashlib.sha256(content).hexdigest()
        await expect(wu.at("annotation")).to_have_count(6)
        # A lost network is no fault of the page; what its sockets say of it is the browser's.
        assert not [told for told in wu.complaints if "WebSocket" not in told]
