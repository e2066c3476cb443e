"""A DICOM series in a room of two: its pixels to everyone, its identities to nobody."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import httpx
import numpy as np
import pytest
from pydicom import dcmread

from tests.support.dicoms import IDENTITIES, content, gray, shipped
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.model


async def arrive(product, room, name):
    client = await RawClient.open(f"ws://127.0.0.1:{product.port}/v1/rooms/{room}")
    await client.hello(name)
    return client


def ct_series() -> bytes:
    samples = np.random.default_rng(7).integers(-1000, 2000, (3, 96, 128)).astype(np.int16)
    tags = {"BodyPartExamined": "CHEST", "PixelSpacing": [0.5, 0.5]}
    return content(gray(samples, WindowCenter=40, WindowWidth=400, **tags))


def spellings(value: str) -> list[bytes]:
    words = [value, *value.split("^")]
    return [word.encode(code) for word in words for code in ("utf-8", "utf-16-le", "utf-16-be")]


def kept_by(product) -> dict[str, bytes]:
    """All that the product wrote, but the store of uploads, which no page opens to others."""
    files = [path for path in Path(product.data_dir).rglob("*") if path.is_file()]
    return {
        str(path): path.read_bytes()
        for path in files
        if "assets" not in path.relative_to(product.data_dir).parts
    }


async def test_no_withheld_tag_reaches_a_participant_a_url_a_prompt_or_the_log(product):
    room = f"dicom-{uuid.uuid4().hex[:8]}"
    mei, wu = await arrive(product, room, "Mei"), await arrive(product, room, "Wu")
    closed = await mei.upload(ct_series(), name="series.dcm", media_type="application/dicom")
    asset = closed["asset"]
    await wu.hear("asset.read", asset=asset)
    await wu.say(type="ask", turn="t1", text="What does this show?")
    await wu.hear("turn.done", turn="t1")
    told: dict[str, bytes] = {}
    for client in (mei, wu):
        told[client.session] = json.dumps(client.heard, ensure_ascii=False).encode()
    base, ticket = wu.welcome["media"]["base"], wu.welcome["media"]["ticket"]
    async with httpx.AsyncClient(base_url=product.base, params={"ticket": ticket}) as http:
        paths = [f"{base}/{asset}/frames/{n}" for n in range(3)]
        paths += [f"{base}/{asset}/levels/{n}" for n in (16, 64, 0)]
        paths += [f"/v1/rooms/{room}/turns/t1"]
        for path in paths:
            answer = await http.get(path)
            assert answer.status_code == 200
            told[path] = answer.content + str(answer.headers).encode() + str(answer.url).encode()
        original = await http.get(f"{base}/{asset}/original")
        assert (original.status_code, original.json()["code"]) == (403, "forbidden")
        prompt = json.loads(told[paths[-1]].split(b"Headers(")[0])["prompt"]
    assert "Medical image series.dcm: CT, chest, 3 frames, 128x96 pixels" in prompt
    told |= kept_by(product)
    for keyword, value in IDENTITIES.items():
        for spelling in spellings(value):
            found = [place for place, text in told.items() if spelling in text]
            assert not found, f"{keyword} in {found}"
    await mei.close()
    await wu.close()


async def test_a_frame_over_http_has_the_samples_of_the_file(product):
    room = f"dicom-{uuid.uuid4().hex[:8]}"
    mei = await arrive(product, room, "Mei")
    closed = await mei.upload(shipped("CT_small.dcm").read_bytes(), name="ct.dcm")
    await mei.hear("asset.read", asset=closed["asset"])
    media = mei.welcome["media"]
    async with httpx.AsyncClient(base_url=product.base) as http:
        path = f"{media['base']}/{closed['asset']}/frames/0"
        answer = await http.get(path, params={"ticket": media["ticket"]})
    length = int.from_bytes(answer.content[:4], "little")
    header = json.loads(answer.content[4 : 4 + length])
    samples = np.frombuffer(answer.content, "<i2", offset=4 + length).reshape(128, 128)
    assert (samples == dcmread(shipped("CT_small.dcm")).pixel_array).all()
    assert (header["slope"], header["intercept"]) == (1.0, -1024.0)
    await mei.close()
