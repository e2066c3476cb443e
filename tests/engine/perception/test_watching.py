"""Cameras through a whole `Perception`: the newest still wins, failures cost one still."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import uuid

import pytest
from PIL import Image

from engine.api import Completed, Detected, EngineCode, Keyframe, LabRow, Media, Stills
from engine.perception.watching import Mailbox
from tests.support.filming import jpeg
from tests.support.labsheet_render import render_sheet
from tests.support.looking import of

module = pytest.mark.asyncio(loop_scope="module")


async def test_the_newest_still_takes_the_place_of_the_one_that_waits():
    box = Mailbox(max_bytes=10)
    for number in range(4):
        box.put(b"%d" % number, number)
    still = await box.next()
    assert (still.jpeg, still.pts_us, box.dropped) == (b"3", 3, 3)
    box.put(b"x" * 11, 5)
    assert (box.refused, box.code) == (1, EngineCode.MEDIA_TOO_BIG)
    box.put(b"last", 6)
    box.end()
    assert (await box.next()).jpeg == b"last"
    assert await box.next() is None


def camera(folder, **more) -> Media:
    name = uuid.uuid4().hex
    derived = str(folder / name)
    return Media(
        id=name, tenant="t", path=None, name=name, derived_dir=derived, is_camera=True, **more
    )


def gray(value: int) -> bytes:
    return jpeg(Image.new("RGB", (320, 240), (value, value, value)))


class Viewer:
    """Reads a camera's observations while the test feeds it."""

    def __init__(self, perception, item: Media) -> None:
        self.seen = []
        self.item = item.id
        self._perception = perception
        self._item = item
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._read(perception.open(item)))

    async def feed(self, content: bytes, pts_us: int) -> None:
        await self._perception.feed(self._item.id, content, pts_us)

    async def until(self, holds) -> None:
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(lambda: holds(self.seen))

    async def end(self) -> list:
        await self._perception.close(self._item.id)
        await self._task
        return self.seen

    async def _read(self, stream) -> None:
        async for observation in stream:
            async with self._news:
                self.seen.append(observation)
                self._news.notify_all()


@module
async def test_each_changed_still_is_a_keyframe_and_times_rise(perception, tmp_path):
    viewer = Viewer(perception, camera(tmp_path, first_frame=5))
    for number, value in enumerate((20, 120, 220)):
        await viewer.feed(gray(value), 1_000 * number)
        await viewer.until(lambda seen, n=number: len(of(Stills, seen)) == n + 1)
    seen = await viewer.end()
    assert [(k.frame, k.pts_us) for k in of(Keyframe, seen)] == [(5, 0), (6, 1_000), (7, 2_000)]
    assert len(of(Detected, seen)) == 1 and isinstance(seen[-1], Completed)
    assert of(Stills, seen)[-1].taken == 3


@module
async def test_a_flood_of_stills_never_makes_a_delay(perception, tmp_path):
    """R59: what waited too long is passed over, and told."""
    viewer = Viewer(perception, camera(tmp_path))
    for number in range(60):
        await viewer.feed(gray(4 * number), number)
    await viewer.until(lambda seen: any(k.pts_us == 59 for k in of(Keyframe, seen)))
    seen = await viewer.end()
    told = of(Stills, seen)[-1]
    assert told.taken + told.dropped == 60 and told.dropped >= 50
    times = [keyframe.pts_us for keyframe in of(Keyframe, seen)]
    assert times == sorted(times)


@module
async def test_a_sheet_before_the_camera_is_read_once_while_it_stands_still(perception, tmp_path):
    sheet = render_sheet(5, "en")
    content = jpeg(Image.open(io.BytesIO(sheet.png)), 92)
    viewer = Viewer(perception, camera(tmp_path))
    for number in range(4):
        await viewer.feed(content, number)
        await viewer.until(lambda seen, n=number: len(of(Stills, seen)) == n + 1)
    seen = await viewer.end()
    assert len(of(Keyframe, seen)) == 1
    rows = of(LabRow, seen)
    assert {(row.frame, row.pts_us) for row in rows} == {(0, 0)}
    flagged = [row for row in rows if row.flag in ("low", "high", "abnormal")]
    assert len(flagged) == len(sheet.out_of_range)


@module
async def test_a_bad_still_and_a_killed_decoder_cost_one_still_each(perception, tmp_path):
    viewer = Viewer(perception, camera(tmp_path))
    await viewer.feed(gray(10), 0)
    await viewer.until(lambda seen: len(of(Stills, seen)) == 1)
    await viewer.feed(b"no jpeg", 1)
    await viewer.until(lambda seen: len(of(Stills, seen)) == 2)
    assert of(Stills, viewer.seen)[-1].code is EngineCode.MEDIA_UNSUPPORTED
    pid = int(perception.stats().gauges["decoder_worker_pid_0"])
    os.kill(pid, signal.SIGSTOP)
    await viewer.feed(gray(90), 2)
    # Handed to the worker, which is stopped and so never answers.
    while perception._looks[viewer.item].stills._still is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    await viewer.until(lambda seen: len(of(Stills, seen)) == 3)
    await viewer.feed(gray(190), 3)
    await viewer.until(lambda seen: len(of(Stills, seen)) == 4)
    told = of(Stills, await viewer.end())[-1]
    assert told.taken >= 2 and told.code is None


@module
async def test_a_still_that_is_too_large_is_refused_before_it_is_kept(perception, tmp_path):
    viewer = Viewer(perception, camera(tmp_path))
    await viewer.feed(b"\xff\xd8" + b"x" * (9 << 20), 0)
    await viewer.feed(gray(7), 1)
    await viewer.until(lambda seen: of(Keyframe, seen))
    told = of(Stills, await viewer.end())[-1]
    assert (told.taken, told.refused) == (1, 1)


@module
async def test_a_camera_that_ends_before_its_first_still_completes(perception, tmp_path):
    viewer = Viewer(perception, camera(tmp_path))
    seen = await viewer.end()
    assert [type(one) for one in seen] == [Completed]
