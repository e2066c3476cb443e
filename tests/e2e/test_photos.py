"""Photographs as phones make them: turned by EXIF, and large."""

from __future__ import annotations

import hashlib
import io
import uuid

import httpx
import numpy as np
import pytest
from PIL import Image, ImageOps

import consilium
from protocol.errors import ErrorCode
from protocol.events import AssetLevel
from protocol.joining import UploadFailed
from tests.support.labsheet_render import photo

# The mean difference, in steps of 255, that re-encoding a noisy photograph leaves.
CODEC_LOSS = 6.0


@pytest.fixture
async def room(product):
    async with consilium.connect(
        f"ws://127.0.0.1:{product.port}", room=f"photo-{uuid.uuid4().hex[:8]}", name="Dr Wu"
    ) as joined:
        yield joined


async def seen(room, content, name):
    levels = room.events(AssetLevel)
    asset_id = await room.upload(content, name=name)
    await room.until(lambda: room.state.assets[asset_id].status in ("read", "failed"))
    asset = room.state.assets[asset_id]
    assert asset.status == "read", asset.message
    came = []
    async for event in levels:
        came.append(event.level.level)
        if event.level.level == 0:
            break
    return asset, came


def difference(shown, reference):
    scaled = np.asarray(reference.resize(shown.size, Image.Resampling.BOX), np.float32)
    return np.abs(np.asarray(shown.convert("RGB"), np.float32) - scaled).mean()


async def test_L51_W74_a_turned_photograph_is_upright_in_every_level(room):
    content = photo(800, 600, orientation=6)
    asset, came = await seen(room, content, "phone.jpg")
    assert (asset.width, asset.height) == (600, 800)
    assert came == [16, 64, 256, 0]
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB")
    for level in asset.levels:
        shown = Image.open(io.BytesIO(await room.fetch_level(asset.asset, level.level)))
        assert shown.size == (level.width, level.height)
        assert shown.getexif().get(0x0112, 1) == 1, "turned once, never again by a viewer"
        loss = difference(shown, upright)
        # A level of 16 pixels is soft, so it is told from the wrong ways round, not from zero.
        for turn in (Image.Transpose.ROTATE_180, Image.Transpose.FLIP_LEFT_RIGHT):
            assert loss < 0.5 * difference(shown, upright.transpose(turn)), level
        if level.level == 0:
            assert loss < CODEC_LOSS


async def test_a_photograph_of_8_mb_goes_through_whole(room):
    content = photo(3264, 2448, orientation=6, target_bytes=8_000_000)
    assert 7_000_000 < len(content) < 9_000_000
    asset, came = await seen(room, content, "large.jpg")
    assert came == [16, 64, 256, 1024, 0]
    assert (asset.width, asset.height) == (2448, 3264)
    assert asset.sha256 == hashlib.sha256(content).hexdigest()
    assert await room.fetch_original(asset.asset) == content


async def test_a_picture_is_fetched_only_with_a_ticket_of_its_room(room, product):
    asset, _ = await seen(room, photo(64, 48), "small.jpg")
    address = f"{product.base}{room.welcome.media.base}/{asset.asset}/levels/0"
    ticket = room.welcome.media.ticket
    async with httpx.AsyncClient() as http:
        assert (await http.get(address)).status_code == 401
        assert (await http.get(address, params={"ticket": ticket + "x"})).status_code == 401
        elsewhere = address.replace(room.welcome.room, "another-room")
        assert (await http.get(elsewhere, params={"ticket": ticket})).status_code == 403
        whole = await http.get(address, params={"ticket": ticket})
        again = await http.get(
            address, params={"ticket": ticket}, headers={"If-None-Match": whole.headers["etag"]}
        )
        part = await http.get(address, params={"ticket": ticket}, headers={"Range": "bytes=0-9"})
    assert whole.status_code == 200 and not whole.headers["etag"].startswith("W/")
    assert again.status_code == 304
    assert (part.status_code, part.content) == (206, whole.content[:10])


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("empty.png", b"", ErrorCode.MEDIA_EMPTY),
        ("really-a-zip.png", None, ErrorCode.MEDIA_UNSUPPORTED),
        ("cut.jpg", photo(400, 300)[:4000], ErrorCode.MEDIA_TRUNCATED),
    ],
)
async def test_L56_a_bad_file_fails_with_its_code_and_the_next_one_works(room, name, content, code):
    if content is None:
        import zipfile

        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("a.txt", "hello " * 100)
        content = packed.getvalue()
    try:
        asset_id = await room.upload(content, name=name)
        await room.until(lambda: room.state.assets[asset_id].status in ("read", "failed"))
        assert room.state.assets[asset_id].code == code
    except UploadFailed as failed:
        assert failed.code == code
    asset, _ = await seen(room, photo(64, 48), "fine.jpg")
    assert asset.status == "read"
