"""Cameras: the newest still goes on, the asset outlives sockets, and none is stored."""

from __future__ import annotations

import pytest

from engine import api
from protocol.media import Flags, MediaFrame, MediaKind
from server.camera import MAX_STILL_BYTES, Stills
from tests.support.scripted_engine import ScriptedEngine


def piece(sequence: int, pts_us: int, payload: bytes, *, is_last: bool = True) -> MediaFrame:
    flags = Flags.LAST_OF_STILL if is_last else 0
    return MediaFrame(1, sequence, payload, MediaKind.CAMERA, flags, pts_us)


def test_pieces_of_one_time_are_one_still_and_the_newest_wins():
    stills = Stills()
    stills.take(piece(0, 10, b"ab", is_last=False))
    assert stills.newest() is None
    stills.take(piece(1, 10, b"cd"))
    assert stills.newest() == (b"abcd", 10)
    assert stills.newest() is None
    stills.take(piece(2, 20, b"old"))
    stills.take(piece(3, 30, b"new"))
    assert stills.newest() == (b"new", 30)


def test_a_still_with_a_hole_or_without_an_end_is_never_handed_on():
    stills = Stills()
    stills.take(piece(0, 10, b"a", is_last=False))
    stills.take(piece(2, 10, b"c"))
    assert stills.newest() is None
    # The end of the next one was lost; the one behind it is whole.
    stills.take(piece(3, 20, b"x", is_last=False))
    stills.take(piece(4, 30, b"y"))
    assert stills.newest() == (b"y", 30)


def test_memory_is_bounded_by_one_still():
    stills = Stills()
    part = b"x" * 65_536
    for sequence in range(2 * MAX_STILL_BYTES // len(part)):
        stills.take(piece(sequence, 10, part, is_last=False))
    assert stills._parts == []
    stills.take(piece(sequence + 1, 10, b"end"))
    assert stills.newest() is None
    stills.take(piece(sequence + 2, 20, b"small"))
    assert stills.newest() == (b"small", 20)


def test_what_never_reaches_the_engine_is_counted_with_its_code():
    stills = Stills()
    told = api.Stills(media="a", taken=1, dropped=1, refused=1, age_s=0.0)
    stills.take(piece(0, 10, b"old"))
    stills.take(piece(1, 20, b"new"))
    stills.take(piece(2, 30, b"a", is_last=False))
    stills.take(piece(4, 30, b"c"))
    seen = stills.counted(told)
    assert (seen.dropped, seen.refused, seen.code) == (2, 2, api.EngineCode.MEDIA_TRUNCATED)
    stills.take(piece(5, 40, b"x" * (MAX_STILL_BYTES + 1)))
    assert stills.counted(told).code == api.EngineCode.MEDIA_TOO_BIG
    stills.take(piece(6, 50, b"whole"))
    seen = stills.counted(told)
    assert (seen.dropped, seen.refused, seen.code) == (3, 3, None)


class Watcher(ScriptedEngine):
    """Keeps the stills it is fed; its observations are the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.fed: list[tuple[bytes, int]] = []
        self.ended: set[str] = set()

    async def feed(self, media: str, chunk: bytes, pts_us: int) -> None:
        self.fed.append((chunk, pts_us))

    async def close(self, media: str) -> None:
        self.ended.add(media)
        self.look(media).put_nowait(api.Completed(media=media))

    def shows(self, asset: str, frame: int) -> None:
        self.look(asset).put_nowait(
            api.Keyframe(
                media=asset, frame=frame, pts_us=frame * 10, path="/x", width=64, height=48
            )
        )


@pytest.fixture
def engine():
    return Watcher()


async def open_camera(client, stream: int = 1, **more) -> str:
    await client.say(
        type="stream.open", stream=stream, kind="camera", media_type="image/jpeg", **more
    )
    return (await client.hear("stream.opened", stream=stream))["asset"]


async def send(client, sequence: int, pts_us: int, payload: bytes) -> None:
    await client.socket.send(piece(sequence, pts_us, payload).serialize())


async def test_a_still_reaches_the_engine_and_its_keyframe_everybody(start, engine):
    server = await start(engine)
    mei, wu = await server.join("Mei"), await server.join("Wu")
    asset = await open_camera(mei, name="Bench")
    opened = await wu.hear("asset.opened", asset=asset)
    assert (opened["kind"], opened["media_type"]) == ("camera", "image/jpeg")
    await send(mei, 0, 70, b"jpeg")
    await wu.until(lambda: engine.fed)
    assert engine.fed == [(b"jpeg", 70)]
    assert engine.opened[0].is_camera and engine.opened[0].path is None
    engine.shows(asset, 0)
    shown = await wu.hear("asset.keyframe", asset=asset)
    assert shown["keyframe"] == {"frame": 0, "pts_us": 0, "width": 64, "height": 48}
    engine.look(asset).put_nowait(api.Stills(media=asset, taken=1, dropped=4, refused=0, age_s=0.5))
    told = await mei.hear("asset.camera", asset=asset)
    assert (told["taken"], told["dropped"], told["age_s"]) == (1, 4, 0.5)


async def test_a_shown_still_can_be_marked_while_the_camera_goes_on(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    asset = await open_camera(mei)
    mark = {
        "type": "annotation.put",
        "annotation": {
            "id": "m1",
            "target": {"asset": asset, "frame": 0, "pts_us": 0},
            "shape": {"type": "rectangle", "x": 1, "y": 1, "width": 5, "height": 5},
        },
    }
    assert (await mei.op("o1", **mark))["code"] == "asset_not_ready"
    engine.shows(asset, 0)
    await mei.hear("asset.keyframe")
    assert "code" not in await mei.op("o2", **mark)


async def test_R55_a_camera_goes_on_in_its_asset_after_a_lost_connection(start, engine):
    server = await start(engine)
    mei = await server.join("Mei", session="mei-session-000001")
    asset = await open_camera(mei)
    engine.shows(asset, 0)
    await mei.hear("asset.keyframe")
    mei.cut()
    again = await server.join("Mei", session="mei-session-000001")
    assert await open_camera(again, stream=5, asset=asset) == asset
    await send_on(again, 5, b"later")
    await again.until(lambda: (b"later", 99) in engine.fed)
    # It was never away for the engine: the same look goes on.
    assert len(engine.opened) == 1


async def send_on(client, stream: int, payload: bytes) -> None:
    frame = MediaFrame(stream, 0, payload, MediaKind.CAMERA, Flags.LAST_OF_STILL, 99)
    await client.socket.send(frame.serialize())


async def test_a_camera_that_is_switched_off_ends_as_read_without_an_original(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    asset = await open_camera(mei)
    engine.shows(asset, 0)
    await mei.hear("asset.keyframe")
    await mei.say(type="stream.close", stream=1)
    closed = await mei.hear("stream.closed", stream=1)
    assert "code" not in closed and "sha256" not in closed
    await mei.hear("asset.read", asset=asset)
    assert engine.ended == {asset}


async def test_a_camera_that_does_not_come_back_ends(start, engine):
    server = await start(engine, upload_resume_s=0.2)
    mei, wu = await server.join("Mei"), await server.join("Wu")
    asset = await open_camera(mei)
    await wu.hear("asset.opened", asset=asset)
    mei.cut()
    await wu.hear("asset.read", asset=asset)


async def test_a_camera_outlives_the_engine_and_its_numbers_go_on(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    asset = await open_camera(mei)
    engine.shows(asset, 0)
    engine.shows(asset, 1)
    await mei.hear("asset.keyframe")
    engine.look(asset).put_nowait(
        api.MediaFailed(media=asset, code=api.EngineCode.ENGINE_LOST, message="gone")
    )
    await mei.until(lambda: len(engine.opened) == 2)
    assert engine.opened[1].first_frame == 2
    await send(mei, 0, 5, b"back")
    await mei.until(lambda: engine.fed)


async def test_a_camera_of_a_server_that_was_killed_ends_after_its_restart(start, engine, tmp_path):
    folder = tmp_path / "house"
    server = await start(engine, upload_resume_s=0.2, folder=folder)
    mei = await server.join("Mei")
    asset = await open_camera(mei)
    engine.shows(asset, 0)
    await mei.hear("asset.keyframe")
    await server.stop()
    again = await start(Watcher(), upload_resume_s=0.2, folder=folder)
    wu = await again.join("Wu")
    await wu.hear("asset.read", asset=asset)


async def test_two_cameras_and_a_question_at_once(start, engine):
    server = await start(engine)
    mei = await server.join("Mei")
    first, second = await open_camera(mei, 1), await open_camera(mei, 2)
    engine.shows(first, 0)
    await mei.hear("asset.keyframe", asset=first)
    engine.says("t1", "Yes.")
    await mei.say(type="ask", turn="t1", text="What is on the bench?")
    await mei.hear("turn.done", turn="t1")
    (seen,) = engine.asked[0].messages[-1].seen
    # The second has shown nothing yet; neither is waited for.
    assert seen.media == first and seen.pictures[0].endswith("frames/0")
    assert second not in {each.media for each in engine.asked[0].messages[-1].seen}
