"""A microphone over a real socket: sent as it comes, gone on with, refused."""

import asyncio

import pytest

from protocol import messages as ms
from protocol.errors import ErrorCode
from protocol.joining import UploadFailed
from protocol.media import MediaFrame, MediaKind
from tests.protocol.test_client_uploads import Shelf
from tests.support.scripted_server import join, scripted

PCM = "audio/pcm;rate=16000;channels=1"
CHUNKS = [bytes([n]) * 640 for n in range(20)]
WHOLE = b"".join(CHUNKS)


async def test_sound_is_sent_as_it_comes_within_the_credit():
    shelf = Shelf(credit=1_000)

    async def act(peer):
        await peer.welcome()
        await shelf.open(peer)
        await shelf.take(peer, len(WHOLE))
        await shelf.finish(peer)
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        async with room.microphone(PCM, name="Mei", asks=True) as microphone:
            for chunk in CHUNKS:
                await microphone.send(chunk)
        assert microphone.asset == "as-7"
    (opened,) = shelf.opens
    assert (opened.kind, opened.media_type, opened.asks) == ("microphone", PCM, True)
    assert opened.size is None and opened.sha256 is None
    assert shelf.held == WHOLE


async def test_L42_what_was_said_while_the_connection_was_lost_is_sent_then():
    """Sound that is lost in a reconnect is a word that nobody says again."""
    shelf = Shelf(credit=2_000)

    async def first(peer):
        await peer.welcome()
        await shelf.open(peer)
        await shelf.take(peer, 1_280)

    async def second(peer):
        await peer.welcome()
        await shelf.open(peer)
        await shelf.take(peer, len(WHOLE))
        await shelf.finish(peer)
        await peer.stay()

    async with scripted(first, second) as server, join(server) as room:
        async with room.microphone(PCM) as microphone:
            for chunk in CHUNKS:
                await microphone.send(chunk)
    assert [opened.asset for opened in shelf.opens] == [None, "as-7"]
    assert shelf.held == WHOLE


async def test_a_refused_microphone_says_why():
    async def act(peer):
        await peer.welcome()
        opened = await peer.hear(ms.StreamOpen)
        await peer.say(
            ms.StreamClosed(stream=opened.stream, code=ErrorCode.MEDIA_UNSUPPORTED, message="no")
        )
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        with pytest.raises(UploadFailed) as refusal:
            async with room.microphone(PCM) as microphone:
                for chunk in CHUNKS:
                    await microphone.send(chunk)
        assert refusal.value.code is ErrorCode.MEDIA_UNSUPPORTED


async def test_a_recording_that_is_left_by_an_exception_is_given_up():
    given_up = asyncio.Event()

    async def act(peer):
        await peer.welcome()
        opened = await peer.hear(ms.StreamOpen)
        await peer.say(ms.StreamOpened(stream=opened.stream, asset="a", offset=0, credit=9_999))
        frame = await peer.hear(MediaFrame)
        assert frame.kind is MediaKind.MICROPHONE
        assert (await peer.hear(ms.StreamAbort)).stream == opened.stream
        given_up.set()
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        with pytest.raises(ZeroDivisionError):
            async with room.microphone(PCM) as microphone:
                await microphone.send(CHUNKS[0])
                raise ZeroDivisionError
        async with asyncio.timeout(5):
            await given_up.wait()
