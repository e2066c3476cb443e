"""Uploads that are not what they seem: each its own code, and the room, socket and engine live."""

from __future__ import annotations

import asyncio
import io
import struct
import zipfile
import zlib

import pytest

from tests.support.labsheet_render import render_sheet
from tests.support.product import Product
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.fault, pytest.mark.model]


@pytest.fixture(scope="module")
def product(tmp_path_factory):
    running = Product(tmp_path_factory.mktemp("house")).start()
    yield running
    running.stop()


@pytest.fixture
async def mei(product):
    client = await RawClient.open(f"ws://127.0.0.1:{product.port}/v1/rooms/ward-7")
    await client.hello("Mei")
    yield client
    await client.close()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + kind + body + struct.pack("!I", zlib.crc32(kind + body))


def png_of(width: int, height: int) -> bytes:
    """A PNG whose header is right and whose pixels are a handful of bytes."""
    header = struct.pack("!IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 1_000)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b""))
    )


def zip_file() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "not a picture " * 100)
    return buffer.getvalue()


def truncated() -> bytes:
    whole = render_sheet(11, "en").png
    return whole[: len(whole) * 6 // 10]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (truncated, "media_truncated"),
        (lambda: png_of(50_000, 50_000), "media_too_many_pixels"),
        (zip_file, "media_unsupported"),
        (lambda: b"", "media_empty"),
    ],
    ids=["truncated", "huge", "zip", "empty"],
)
async def test_L56_a_bad_picture_fails_alone_with_its_own_code(mei, make, code):
    closed = await mei.upload(make(), name="picture.png", media_type="image/png")
    assert "code" not in closed, "the upload itself was whole"
    async with asyncio.timeout(30):
        failed = await mei.hear("asset.failed", "asset.read", asset=closed["asset"])
    assert (failed["type"], failed.get("code")) == ("asset.failed", code)
    mark = {"id": "m", "target": {"asset": closed["asset"]}}
    shape = {"type": "point", "x": 1, "y": 1}
    refused = await mei.op("m1", type="annotation.put", annotation={**mark, "shape": shape})
    assert refused["code"] == "asset_not_ready"
    assert (await mei.comment(f"after-{code}"))["type"] == "ack"


async def test_after_all_of_them_a_good_picture_is_read(mei):
    closed = await mei.upload(render_sheet(11, "en").png, name="sheet.png")
    for _ in range(5):
        try:
            read = await mei.hear("asset.read", "asset.failed", asset=closed["asset"])
            break
        except TimeoutError:
            continue
    assert read["type"] == "asset.read"
