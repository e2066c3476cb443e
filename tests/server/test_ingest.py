"""Uploads over lost sockets and restarts."""

from __future__ import annotations

import asyncio
import hashlib
import random
from pathlib import Path

import msgspec

from protocol.media import MediaFrame
from protocol.shapes import Actor
from server.upload import Claim, claim_path
from tests.support.scripted_engine import ScriptedEngine

CONTENT = random.Random(6).randbytes(500_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
PART = 200_000


async def begin(client, size: int = PART) -> str:
    await client.say(type="stream.open", stream=1, size=len(CONTENT), sha256=DIGEST)
    opened = await client.hear("stream.opened")
    await client.hear("asset.opened")
    await client.send_chunks(CONTENT[:size])
    await client.hear("stream.credit", received=size)
    return opened["asset"]


async def test_R57_an_upload_cut_at_forty_percent_goes_on_where_the_server_stands(server):
    mei = await server.join(session="session-of-mei-0001")
    asset = await begin(mei)
    mei.cut()
    back = await server.join(session="session-of-mei-0001")
    closed = await back.upload(CONTENT, stream=7, asset=asset)
    assert closed["sha256"] == DIGEST
    opened = await back.hear("stream.opened")
    assert (opened["asset"], opened["offset"]) == (asset, PART)


async def test_an_upload_goes_on_after_a_restart_of_the_server(start, tmp_path):
    first = await start(folder=tmp_path / "house")
    mei = await first.join(session="session-of-mei-0001")
    asset = await begin(mei)
    await first.stop()
    second = await start(folder=tmp_path / "house")
    back = await second.join(session="session-of-mei-0001")
    closed = await back.upload(CONTENT, stream=2, asset=asset)
    assert closed["sha256"] == DIGEST
    assert (await back.hear("stream.opened"))["offset"] == PART


async def test_somebody_elses_upload_cannot_be_gone_on_with(server):
    mei = await server.join()
    asset = await begin(mei)
    wu = await server.join("Wu")
    assert (await wu.upload(CONTENT, asset=asset))["code"] == "asset_unknown"
    elsewhere = await server.join(room="elsewhere", session=mei.session)
    assert (await elsewhere.upload(CONTENT, asset=asset))["code"] == "asset_unknown"
    assert (await wu.upload(CONTENT, stream=2, asset="no-such"))["code"] == "asset_unknown"


async def test_L29_one_connection_alone_sends_an_upload(server):
    mei = await server.join(session="session-of-mei-0001")
    asset = await begin(mei)
    await mei.say(type="stream.open", stream=2, asset=asset)
    assert (await mei.hear("stream.closed", stream=1))["code"] == "replaced"
    await mei.hear("stream.opened", stream=2)
    await mei.send_chunks(CONTENT[PART:], stream=2)
    await mei.say(type="stream.close", stream=2)
    assert (await mei.hear("stream.closed", stream=2))["sha256"] == DIGEST


async def test_an_upload_that_nobody_goes_on_with_is_abandoned(start):
    server = await start(upload_resume_s=0.2)
    wu, mei = await server.join("Wu"), await server.join()
    asset = await begin(mei)
    mei.cut()
    failed = await wu.hear("asset.failed")
    assert (failed["asset"], failed["code"]) == (asset, "upload_abandoned")
    uploads = list((server.settings.folder / "uploads").iterdir())
    async with asyncio.timeout(5):
        while uploads:
            await asyncio.sleep(0.01)
            uploads = list((server.settings.folder / "uploads").iterdir())


async def test_an_upload_of_an_earlier_run_that_nobody_goes_on_with_is_abandoned(start, tmp_path):
    first = await start(folder=tmp_path / "house")
    asset = await begin(await first.join())
    await first.stop()
    second = await start(folder=tmp_path / "house", upload_resume_s=0.2)
    wu = await second.join("Wu")
    assert (await wu.hear("asset.failed"))["asset"] == asset


async def test_the_same_bytes_are_kept_once(server):
    mei, wu = await server.join(), await server.join("Wu", room="elsewhere")
    first, second = await mei.upload(CONTENT), await wu.upload(CONTENT)
    assert first["asset"] != second["asset"]
    kept = [p for p in (server.settings.folder / "assets").rglob("*") if p.is_file()]
    assert [path.name for path in kept] == [DIGEST]


async def test_a_lost_socket_keeps_what_it_had_sent(server):
    mei = await server.join(session="session-of-mei-0001")
    await mei.say(type="stream.open", stream=1)
    opened = await mei.hear("stream.opened")
    for number in range(10):
        await mei.socket.send(MediaFrame(1, number, b"y" * 1_000).serialize())
    await mei.comment("c1")
    mei.cut()
    back = await server.join(session="session-of-mei-0001")
    await back.say(type="stream.open", stream=1, asset=opened["asset"])
    assert (await back.hear("stream.opened"))["offset"] == 10_000


def leave_claim(server, client, asset: str) -> Path:
    """Put an upload's claim where a killed server left it."""
    path = server.settings.folder / "uploads" / asset
    path.parent.mkdir(exist_ok=True)
    path.touch()
    by = Actor(id=client.welcome["participant"], name="Mei")
    claim = Claim(asset=asset, room="ward-7", by=by, name="a.png", size=len(CONTENT))
    claim_path(path).write_bytes(msgspec.json.encode(claim))
    return path


async def test_R57_a_committed_asset_is_not_uploaded_again_and_never_fails(start):
    """After a kill between the commit and the tidying up, an abort made the asset a failed one."""
    # An engine that looks on and on: one that is away would fail the asset for its own reason.
    server = await start(ScriptedEngine())
    mei = await server.join()
    asset = (await mei.upload(CONTENT))["asset"]
    leave_claim(server, mei, asset)
    await mei.say(type="stream.open", stream=2, asset=asset)
    await mei.say(type="stream.abort", stream=2)
    assert (await mei.hear("stream.closed", stream=2))["code"] == "asset_unknown"
    wu = await server.join("Wu")
    (known,) = wu.welcome["snapshot"]["assets"]
    assert known["status"] == "committed"


async def test_R57_an_upload_whose_beginning_was_not_recorded_is_in_the_room_when_it_ends(server):
    """Killed before the log had `asset.opened`, an acknowledged upload was no asset of the room."""
    mei = await server.join()
    leave_claim(server, mei, "a-of-a-killed-server")
    closed = await mei.upload(CONTENT, asset="a-of-a-killed-server")
    assert closed["sha256"] == DIGEST
    assert [event["type"] for event in mei.events()][:2] == ["asset.opened", "asset.committed"]


async def test_R57_two_sockets_that_go_on_at_once_after_a_restart_are_told_the_same_offset(server):
    """The second was told to begin at 0 while the first one's file was still being read."""
    mei = await server.join(session="session-of-mei-0001")
    path = leave_claim(server, mei, "a-of-a-killed-server")
    path.write_bytes(CONTENT[:PART])
    for stream in (1, 2, 3):
        await mei.say(type="stream.open", stream=stream, asset="a-of-a-killed-server")
    for stream in (1, 2, 3):
        assert (await mei.hear("stream.opened", stream=stream))["offset"] == PART

    def replaced() -> set[int]:
        return {m["stream"] for m in mei.heard if m["type"] == "stream.closed"}

    await mei.until(lambda: len(replaced()) == 2)
    (last,) = {1, 2, 3} - replaced()
    await mei.send_chunks(CONTENT[PART:], stream=last)
    await mei.say(type="stream.close", stream=last)
    assert (await mei.hear("stream.closed", stream=last))["sha256"] == DIGEST


async def test_an_upload_that_the_disk_does_not_take_can_be_tried_again(server):
    mei = await server.join()
    folder = server.settings.folder / "uploads"
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where the folder should be")
    assert (await mei.upload(CONTENT))["code"] == "unavailable"
    folder.unlink()
    assert (await mei.upload(CONTENT, stream=2))["sha256"] == DIGEST
