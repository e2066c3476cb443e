"""Uploads over a real socket: credit, resume, refusals, and what may overtake them."""

import asyncio
import hashlib

import pytest

import consilium
from protocol import events as ev
from protocol import messages as ms
from protocol.errors import ErrorCode
from protocol.media import MediaFrame
from protocol.state import AssetState, Snapshot
from tests.support.scripted_server import AT, MEI, comment, join, scripted


class Shelf:
    """What the scripted server holds of one upload."""

    def __init__(self, credit: int = 1_000) -> None:
        self.credit = credit
        self.held = b""
        self.opens: list[ms.StreamOpen] = []

    async def open(self, peer) -> ms.StreamOpen:
        opened = await peer.hear(ms.StreamOpen)
        self.opens.append(opened)
        await peer.say(
            ms.StreamOpened(
                stream=opened.stream, asset="as-7", offset=len(self.held), credit=self.credit
            )
        )
        return opened

    async def take(self, peer, stop_at: int) -> None:
        """Take chunks, granting what was taken, and refuse any byte beyond the credit."""
        granted, taken, sequence = self.credit, 0, 0
        while len(self.held) < stop_at:
            frame = await peer.hear(MediaFrame)
            taken += len(frame.payload)
            assert taken <= granted, "the client overdrew its credit"
            assert frame.sequence == sequence
            sequence += 1
            self.held += frame.payload
            granted += len(frame.payload)
            await peer.say(
                ms.StreamCredit(
                    stream=frame.stream, credit=len(frame.payload), received=len(self.held)
                )
            )

    async def finish(self, peer) -> None:
        closing = await peer.hear(ms.StreamClose)
        sha256 = hashlib.sha256(self.held).hexdigest()
        await peer.say(ms.StreamClosed(stream=closing.stream, asset="as-7", sha256=sha256))


BYTES = bytes(n * 7 % 251 for n in range(10_000))


async def test_an_upload_keeps_to_its_credit_and_arrives_whole(tmp_path):
    shelf, told = Shelf(credit=1_000), []

    async def act(peer):
        await peer.welcome()
        await shelf.open(peer)
        await shelf.take(peer, len(BYTES))
        await shelf.finish(peer)
        await peer.stay()

    (tmp_path / "sheet.png").write_bytes(BYTES)
    async with scripted(act) as server, join(server) as room:
        progress = lambda done, size: told.append((done, size))  # noqa: E731
        assert await room.upload(tmp_path / "sheet.png", progress=progress) == "as-7"
    assert shelf.held == BYTES
    (opened,) = shelf.opens
    assert (opened.name, opened.size) == ("sheet.png", 10_000)
    assert opened.sha256 == hashlib.sha256(BYTES).hexdigest()
    assert told == sorted(told) and told[-1] == (10_000, 10_000)


async def test_r13_an_upload_that_was_cut_goes_on_at_the_servers_offset():
    shelf = Shelf(credit=4_000)

    async def cut(peer):
        await peer.welcome()
        await shelf.open(peer)
        await shelf.take(peer, 4_000)
        peer.drop()

    async def rest(peer):
        await peer.welcome()
        await shelf.open(peer)
        await shelf.take(peer, len(BYTES))
        await shelf.finish(peer)
        await peer.stay()

    async with scripted(cut, rest) as server, join(server) as room:
        assert await room.upload(BYTES, name="x.bin") == "as-7"
    assert shelf.held == BYTES
    first, second = shelf.opens
    assert first.asset is None and second.asset == "as-7"


async def test_an_upload_whose_end_was_lost_is_not_sent_again():
    shelf = Shelf(credit=10_000)

    async def lose_the_end(peer):
        await peer.welcome()
        await shelf.open(peer)
        await shelf.take(peer, len(BYTES))
        await peer.hear(ms.StreamClose)
        peer.drop()

    async def know(peer):
        asset = AssetState(asset="as-7", name="x.bin", by=MEI, status="committed")
        snapshot = Snapshot(seq=3, epoch="e1", assets=(asset,))
        await peer.welcome(head=3, snapshot=snapshot)
        await peer.stay()

    async with scripted(lose_the_end, know) as server, join(server) as room:
        assert await room.upload(BYTES) == "as-7"
    assert len(shelf.opens) == 1


async def test_an_upload_that_is_stored_while_the_client_is_away_is_found():
    shelf = Shelf(credit=10_000)

    async def lose_the_end(peer):
        await peer.welcome()
        opened = ev.AssetOpened(at=AT, actor=MEI, asset="as-7", name="x")
        await peer.tell(opened)
        await shelf.open(peer)
        await shelf.take(peer, len(BYTES))
        await peer.hear(ms.StreamClose)
        peer.drop()

    async def store_meanwhile(peer):
        await peer.welcome()
        asked = await peer.hear(ms.StreamOpen)
        unknown = ms.Error(code=ErrorCode.ASSET_UNKNOWN, message="", ref=str(asked.stream))
        await peer.say(unknown)
        committed = ev.AssetCommitted(at=AT, actor=MEI, asset="as-7", size=10_000, sha256="0" * 64)
        await peer.tell(committed)
        await peer.stay()

    async with scripted(lose_the_end, store_meanwhile) as server, join(server) as room:
        assert await room.upload(BYTES) == "as-7"


async def test_an_upload_that_the_server_lost_fails():
    shelf = Shelf(credit=1_000)

    async def cut(peer):
        await peer.welcome()
        await shelf.open(peer)
        peer.drop()

    async def forget(peer):
        await peer.welcome()
        while True:
            asked = await peer.hear(ms.StreamOpen)
            await peer.say(
                ms.StreamClosed(stream=asked.stream, code=ErrorCode.ASSET_UNKNOWN, message="lost")
            )

    async with scripted(cut, forget) as server, join(server) as room:
        with pytest.raises(consilium.UploadFailed) as failed:
            await room.upload(BYTES)
        assert failed.value.code is ErrorCode.ASSET_UNKNOWN


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: ms.StreamClosed(stream=n, code=ErrorCode.MEDIA_TOO_BIG, message="no"),
        lambda n: ms.Error(code=ErrorCode.MEDIA_TOO_BIG, message="no", ref=str(n)),
    ],
)
async def test_a_refused_upload_raises_with_its_code(answer):
    async def act(peer):
        await peer.welcome()
        await peer.say(answer((await peer.hear(ms.StreamOpen)).stream))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        with pytest.raises(consilium.UploadFailed) as failed:
            await room.upload(BYTES)
        assert failed.value.code is ErrorCode.MEDIA_TOO_BIG


async def test_an_upload_that_is_given_up_is_told_to_the_server():
    async def act(peer):
        await peer.welcome()
        await Shelf(credit=100).open(peer)
        await peer.hear(ms.StreamAbort)
        await peer.tell(comment("aborted"))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        begun = asyncio.Event()
        upload = asyncio.create_task(room.upload(BYTES, progress=lambda *_: begun.set()))
        await begun.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        await room.until(lambda: room.state.seq == 1)


async def test_no_more_uploads_run_at_once_than_the_server_takes():
    running, most = set(), []

    async def act(peer):
        await peer.welcome(max_streams=2)
        for _ in range(10):
            match await peer.hear(ms.ClientMessage | MediaFrame):
                case ms.StreamOpen(stream=stream):
                    running.add(stream)
                    most.append(len(running))
                    await peer.say(
                        ms.StreamOpened(stream=stream, asset=f"as-{stream}", offset=0, credit=9)
                    )
                case ms.StreamClose(stream=stream):
                    running.discard(stream)
                    await peer.say(ms.StreamClosed(stream=stream, asset=f"as-{stream}"))
                case MediaFrame():
                    pass
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        assets = await asyncio.gather(*(room.upload(b"tiny") for _ in range(3)))
    assert sorted(assets) == ["as-1", "as-2", "as-3"]
    assert max(most) == 2


async def test_an_op_overtakes_a_long_upload():
    shelf = Shelf(credit=1_000_000)

    async def act(peer):
        await peer.welcome()
        await shelf.open(peer)
        op = await peer.hear(ms.Op)
        await peer.say(ms.Ack(op_id=op.op_id, seq=1))
        shelf.held = b"".join(m.payload for m in peer.heard if isinstance(m, MediaFrame))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        begun = asyncio.Event()
        upload = asyncio.create_task(room.upload(bytes(1_000_000), progress=lambda *_: begun.set()))
        await begun.wait()
        assert await room.comment("quick") == 1
        assert len(shelf.held) < 1_000_000
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
