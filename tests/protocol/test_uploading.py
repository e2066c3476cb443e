"""An upload ends as it should whatever its sockets do."""

import pytest

from protocol import codec
from protocol.errors import ErrorCode
from protocol.joining import UploadFailed
from protocol.messages import (
    Error,
    Hello,
    StreamAbort,
    StreamClose,
    StreamClosed,
    StreamOpen,
    StreamOpened,
)
from protocol.outflow import Outflow
from protocol.room import RoomState
from protocol.session import ClientSession
from protocol.shapes import Actor
from protocol.state import AssetState
from protocol.uploading import GreetedSocket, SocketLost, Uploads, is_stored

MEI = Actor(id="p-1", name="Mei")


class Wire:
    """Sockets that answer at once; each is lost after as many frames as it says."""

    def __init__(self, uploads, lost_after):
        self.session = ClientSession(Hello(session="s" * 32, client="test"))
        self.uploads = uploads
        self.lost_after = list(lost_after)
        self.held = b""
        self.said = []

    async def greeted(self):
        left = self.lost_after.pop(0) if self.lost_after else 1_000

        async def send(frame, is_text):
            nonlocal left
            left -= 1
            if left < 0:
                raise SocketLost
            if is_text:
                self.answer(*codec.decode_client(frame))
            else:
                self.held += frame[24:]

        async def until(holds):
            assert holds(), "nothing more will come"

        return GreetedSocket(send, until, lambda: True)

    def answer(self, message):
        self.said.append(message)
        if isinstance(message, StreamOpen):
            self.uploads.take(
                StreamOpened(
                    stream=message.stream, asset="as-1", offset=len(self.held), credit=10**6
                )
            )
        elif isinstance(message, StreamClose):
            self.uploads.take(StreamClosed(stream=message.stream, asset="as-1"))


def reading(content):
    async def read(offset, size):
        return content[offset : offset + size]

    return read


@pytest.mark.parametrize("lost_after", [[], [0], [1], [2], [3], [4], [1, 1, 2], [0, 2, 0]])
async def test_it_arrives_whole_over_any_sockets(lost_after):
    content = bytes(range(256)) * 600
    uploads = Uploads()
    wire = Wire(uploads, lost_after)
    flow = Outflow(len(content))
    assert await uploads.store(flow, wire, reading(content), None) == "as-1"
    assert wire.held == content


async def test_a_file_that_became_shorter_is_given_up_and_told():
    uploads = Uploads()
    wire = Wire(uploads, [])
    with pytest.raises(UploadFailed) as failed:
        await uploads.store(Outflow(100_000), wire, reading(b"x" * 70_000), None)
    assert failed.value.code is ErrorCode.SIZE_MISMATCH
    assert isinstance(wire.said[-1], StreamAbort)


def test_an_error_that_names_another_thing_is_not_for_uploads():
    uploads = Uploads()
    uploads.take(Error(code=ErrorCode.BAD_MESSAGE, message="", ref="o-1"))
    uploads.take(Error(code=ErrorCode.BAD_MESSAGE, message="", ref="12"))
    uploads.take(Error(code=ErrorCode.BAD_MESSAGE, message=""))


@pytest.mark.parametrize("status, stored", [("open", False), ("committed", True), ("read", True)])
def test_the_rooms_state_tells_what_a_lost_socket_could_not(status, stored):
    state = RoomState("e1")
    state.assets["as-1"] = AssetState(asset="as-1", name="x", by=MEI, status=status)
    flow = Outflow(1)
    assert not is_stored(flow, state)
    flow.asset = "as-1"
    assert is_stored(flow, state) == stored


def test_a_failed_asset_is_a_failed_upload():
    state = RoomState("e1")
    state.assets["as-1"] = AssetState(
        asset="as-1", name="x", by=MEI, status="failed", code=ErrorCode.MEDIA_EMPTY
    )
    flow = Outflow(1)
    flow.asset = "as-1"
    with pytest.raises(UploadFailed) as failed:
        is_stored(flow, state)
    assert failed.value.code is ErrorCode.MEDIA_EMPTY
