"""A camera over a real socket: whole stills within the credit, gone on with, refused."""

import asyncio

import pytest

from protocol import messages as ms
from protocol.errors import ErrorCode
from protocol.joining import UploadFailed
from protocol.media import Flags, MediaFrame, MediaKind
from tests.protocol.test_client_uploads import Shelf
from tests.support.scripted_server import join, scripted

STILLS = [bytes([n]) * 150_000 for n in range(3)]


async def test_a_still_is_sent_in_pieces_of_one_time_with_its_last_one_flagged():
    shelf, frames = Shelf(credit=100_000), []

    async def act(peer):
        await peer.welcome()
        opened = await shelf.open(peer)
        assert (opened.kind, opened.media_type, opened.size) == ("camera", "image/jpeg", None)
        while len(frames) < 9:
            frame = await peer.hear(MediaFrame)
            frames.append(frame)
            size = len(frame.payload)
            await peer.say(ms.StreamCredit(stream=frame.stream, credit=size, received=0))
        closing = await peer.hear(ms.StreamClose)
        await peer.say(ms.StreamClosed(stream=closing.stream, asset="as-7"))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        async with room.camera(name="Bench") as camera:
            for number, still in enumerate(STILLS):
                assert await camera.send(still, number * 200_000)
        assert camera.asset == "as-7"
    assert {frame.kind for frame in frames} == {MediaKind.CAMERA}
    assert [frame.sequence for frame in frames] == list(range(len(frames)))
    for number, still in enumerate(STILLS):
        mine = [frame for frame in frames if frame.pts_us == number * 200_000]
        assert b"".join(frame.payload for frame in mine) == still
        assert [bool(f.flags & Flags.LAST_OF_STILL) for f in mine[:-1]] == [False] * (len(mine) - 1)
        assert mine[-1].flags & Flags.LAST_OF_STILL


async def test_R55_a_still_is_lost_with_its_connection_and_the_next_goes_on():
    shelf, got = Shelf(credit=1_000_000), []

    async def first(peer):
        await peer.welcome()
        await shelf.open(peer)
        got.append(await peer.hear(MediaFrame))

    async def second(peer):
        await peer.welcome()
        await shelf.open(peer)
        got.append(await peer.hear(MediaFrame))
        closing = await peer.hear(ms.StreamClose)
        await peer.say(ms.StreamClosed(stream=closing.stream, asset="as-7"))
        await peer.stay()

    async with scripted(first, second) as server, join(server) as room:
        async with room.camera() as camera:
            sent = 0
            # As a camera does: again and again, with the loop in between.
            while len(got) < 2:
                sent += await camera.send(b"still", sent)
                await asyncio.sleep(0.01)
    assert [opened.asset for opened in shelf.opens] == [None, "as-7"]


async def test_a_camera_that_the_server_refuses_raises_its_code():
    async def act(peer):
        await peer.welcome()
        opened = await peer.hear(ms.StreamOpen)
        await peer.say(
            ms.StreamClosed(stream=opened.stream, code=ErrorCode.ROOM_FULL, message="full")
        )
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        with pytest.raises(UploadFailed) as refusal:
            await room.camera().send(b"still", 0)
    assert refusal.value.code is ErrorCode.ROOM_FULL
