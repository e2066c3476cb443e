"""Videos and cameras through the whole house: keyframes, rows with their times, and questions."""

from __future__ import annotations

import asyncio
import io
import itertools
import uuid
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import consilium
from protocol import messages as ms
from protocol.errors import ErrorCode
from protocol.shapes import LabRow, Rectangle, SpeechRow
from tests.support.filming import encoded, jpeg
from tests.support.labsheet_render import RenderedSheet, render_sheet
from tests.support.spoken import samples


def page_of(sheet: RenderedSheet) -> Image.Image:
    page = Image.open(io.BytesIO(sheet.png)).convert("RGB")
    even = Image.new("RGB", (page.width // 2 * 2, page.height // 2 * 2), "white")
    even.paste(page)
    return even


def clip(sheet: RenderedSheet, folder: Path) -> bytes:
    """Two seconds of nothing, then the sheet; somebody speaks all the while."""
    page = page_of(sheet)
    pcm, rate = samples("beckett")
    at = np.arange(0, len(pcm) - 1, rate / 16_000)
    sound = np.interp(at, np.arange(len(pcm)), pcm).astype("<i2")
    shots = [(Image.new("RGB", page.size, "black"), 2.0), (page, 3.0)]
    return encoded(shots, ".mp4", folder, rate=5, options={"crf": "12"}, sound=sound)


@pytest.fixture
async def join(product):
    room = f"video-{uuid.uuid4().hex[:8]}"
    opened = []

    async def enter(name: str):
        client = consilium.connect(f"ws://127.0.0.1:{product.port}", room=room, name=name)
        opened.append(client)
        return await client.__aenter__()

    yield enter
    for client in opened:
        await client.__aexit__(None, None, None)


async def test_a_video_is_read_at_its_times_and_asked_about(join, tmp_path):
    sheet = render_sheet(11, "en")
    mei, wu = await join("Mei"), await join("Wu")
    asset_id = await mei.upload(clip(sheet, tmp_path), name="round.mp4")
    await wu.until(lambda: wu.state.assets[asset_id].status in ("read", "failed"))
    asset = wu.state.assets[asset_id]
    assert asset.status == "read", asset.message
    assert asset.media_type == "video/mp4" and asset.duration_s >= 4.9
    assert [k.pts_us for k in asset.keyframes[:5]] == [n * 1_000_000 for n in range(5)]
    rows = [row for row in asset.rows if isinstance(row, LabRow)]
    assert {(row.frame, row.pts_us) for row in rows} == {(2, 2_000_000)}
    marks = [m.annotation for m in wu.state.annotations.values()]
    assert len(marks) == len(sheet.out_of_range)
    # W89: a mark names both the time and the frame it was made on.
    assert {(m.target.frame, m.target.pts_us) for m in marks} == {(2, 2_000_000)}
    assert "fail" in " ".join(r.text for r in asset.rows if isinstance(r, SpeechRow)).lower()
    still = Image.open(io.BytesIO(await wu.fetch_frame(asset_id, 2)))
    assert still.size == page_of(sheet).size
    turn = await wu.ask("Which values are out of range?", assets=[asset_id], max_tokens=8)
    await turn.done()
    record = await wu.fetch_turn_record(turn.turn)
    assert "round.mp4 at 0:02" in record["prompt"]
    assert "Transcript of round.mp4" in record["prompt"]
    for row in sheet.out_of_range:
        assert row.value in record["prompt"]


async def test_a_person_marks_a_moment_of_a_video(join, tmp_path):
    mei, wu = await join("Mei"), await join("Wu")
    shots = [(Image.new("RGB", (160, 120), c), 1.0) for c in ("black", "white", "gray")]
    asset = await mei.upload(encoded(shots, ".webm", tmp_path, codec="libvpx"), name="c.webm")
    await mei.until(lambda: mei.state.assets[asset].status == "read")
    shape = Rectangle(x=1, y=2, width=30, height=40)
    await mei.annotate(asset, shape, frame=1, pts_us=1_000_000, mark="m1")
    await wu.until(lambda: "m1" in wu.state.annotations)
    target = wu.state.annotations["m1"].annotation.target
    assert (target.frame, target.pts_us) == (1, 1_000_000)
    assert wu.state.hash() == mei.state.hash()


async def test_a_camera_is_watched_by_everybody_and_ends_when_it_is_switched_off(join):
    mei, wu = await join("Mei"), await join("Wu")
    told = wu.events(ms.CameraState)
    sheet = render_sheet(12, "en")
    stills = [jpeg(Image.new("RGB", (640, 480), "navy")), jpeg(page_of(sheet), 92)]
    async with mei.camera(name="Bench") as camera:
        for number in itertools.count():
            await camera.send(stills[min(number // 5, 1)], number * 100_000)
            await asyncio.sleep(0.1)
            asset = wu.state.assets.get(camera.asset or "")
            if asset is not None and any(isinstance(row, LabRow) for row in asset.rows):
                break
            assert number < 300, "the sheet before the camera was not read"
        assert asset.status == "open" and asset.kind == "camera"
        turn = await wu.ask("Is it normal?", max_tokens=4)
        await turn.done()
        assert "Bench" in (await wu.fetch_turn_record(turn.turn))["prompt"]
        state = await anext(aiter(told))
        assert state.asset == camera.asset and state.taken >= 1
    await wu.until(lambda: wu.state.assets[camera.asset].status == "read")
    keyframes = wu.state.assets[camera.asset].keyframes
    times = [k.pts_us for k in keyframes]
    assert times == sorted(times) and [k.frame for k in keyframes] == list(range(len(times)))
    still = Image.open(io.BytesIO(await wu.fetch_frame(camera.asset, keyframes[0].frame)))
    assert still.size == (640, 480)


@pytest.mark.parametrize("cut", [0.3, 0.9])
async def test_a_cut_video_fails_with_its_code_and_the_next_one_works(join, tmp_path, cut):
    mei = await join("Mei")
    shots = [(Image.new("RGB", (160, 120), (n * 30, 0, 0)), 1.0) for n in range(5)]
    whole = encoded(shots, ".mp4", tmp_path)
    asset = await mei.upload(whole[: int(len(whole) * cut)], name="cut.mp4")
    await mei.until(lambda: mei.state.assets[asset].status in ("failed", "read"))
    assert mei.state.assets[asset].code == ErrorCode.MEDIA_TRUNCATED
    assert mei.state.assets[asset].keyframes == ()
    again = await mei.upload(whole, name="whole.mp4")
    await mei.until(lambda: mei.state.assets[again].status in ("failed", "read"))
    assert mei.state.assets[again].status == "read"


async def test_what_is_no_jpeg_costs_its_still_and_is_told(join):
    mei = await join("Mei")
    states = mei.events(ms.CameraState)
    async with mei.camera() as camera:
        assert await camera.send(b"not a jpeg", 0)
        assert (await anext(aiter(states))).code == ErrorCode.MEDIA_UNSUPPORTED
        assert await camera.send(jpeg(Image.new("RGB", (64, 48), "red")), 1)
        await mei.until(lambda: bool(mei.state.assets[camera.asset].keyframes))
