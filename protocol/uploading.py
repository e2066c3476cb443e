"""All uploads of one participant, over reconnects; sockets and files belong to the caller."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from protocol.base import ClientMessage, ServerMessage
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.joining import UploadFailed
from protocol.media import MediaFrame
from protocol.messages import (
    Error,
    StreamAbort,
    StreamClosed,
    StreamCredit,
    StreamOpened,
)
from protocol.outflow import Outflow
from protocol.room import RoomState
from protocol.session import ClientSession

Read = Callable[[int, int], Awaitable[bytes]]
Progress = Callable[[int, int], None]


class SocketLost(Exception):
    """The socket that was in use closed, or another one took its place."""


class GreetedSocket:
    """One socket whose welcome came, as long as it lives."""

    def __init__(
        self,
        send: Callable[[bytes, bool], Awaitable[None]],
        until: Callable[[Callable[[], bool]], Awaitable[None]],
        is_in_use: Callable[[], bool],
    ) -> None:
        self._send = send
        self._until = until
        self._is_in_use = is_in_use

    async def send(self, message: ClientMessage | MediaFrame) -> None:
        """Send one frame; raises `SocketLost`."""
        if isinstance(message, MediaFrame):
            await self._send(message.serialize(), False)
        else:
            await self._send(encode(message), True)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds; raises `SocketLost` when the socket goes first."""
        await self._until(lambda: holds() or not self._is_in_use())
        if not holds():
            raise SocketLost


class Sockets(Protocol):
    """Where the next socket comes from, and the room's state."""

    session: ClientSession

    async def greeted(self) -> GreetedSocket:
        """Wait for a socket whose welcome came, and for the events that it spoke of."""


class Uploads:
    """The streams that are open on the present socket, by number."""

    def __init__(self) -> None:
        self._flows: dict[int, Outflow] = {}
        self._stream_ids = itertools.count(1)

    def take(self, message: ServerMessage) -> None:
        """Hand a message to the upload that it speaks of, if it speaks of one."""
        match message:
            case StreamOpened() | StreamCredit() | StreamClosed():
                if (flow := self._flows.get(message.stream)) is not None:
                    flow.receive(message)
            case Error(ref=str(ref)) if ref.isdecimal():
                if (flow := self._flows.get(int(ref))) is not None:
                    flow.receive(message)
            case _:
                pass

    def begin(self, flow: Outflow) -> int:
        """Give an upload the next free stream."""
        stream = next(self._stream_ids)
        self._flows[stream] = flow
        return stream

    def end(self, flow: Outflow) -> None:
        """Hear no more of an upload."""
        self._flows.pop(flow.stream, None)

    async def store(
        self, flow: Outflow, sockets: Sockets, read: Read, progress: Progress | None
    ) -> str:
        """Send an upload, over as many sockets as it takes; return its asset's id.

        Raises `UploadFailed` when the server does not take it, or when fewer bytes can be read
        than were said.
        """
        is_doubted = False
        while not is_stored(flow, sockets.session.state):
            socket = await sockets.greeted()
            if not is_stored(flow, sockets.session.state):
                with suppress(SocketLost):
                    await self._pour(flow, socket, read, progress)
                if flow.is_unknown_there() and not is_doubted:
                    # The event that it was stored may be on its way behind this answer.
                    is_doubted, flow.closed = True, None
        assert flow.asset is not None, "a stored upload has its asset"
        return flow.asset

    async def _pour(
        self, flow: Outflow, socket: GreetedSocket, read: Read, progress: Progress | None
    ) -> None:
        """Send an upload to its end over one socket."""
        stream = self.begin(flow)
        is_abandoned = True
        try:
            await socket.send(flow.ask(stream))
            while flow.closed is None:
                await self._advance(flow, socket, read)
                if progress is not None:
                    progress(flow.received, flow.size)
            is_abandoned = False
        except SocketLost:
            is_abandoned = False
            raise
        finally:
            del self._flows[stream]
            if is_abandoned:
                # Without a word the server would keep a place for an upload that never ends.
                with suppress(SocketLost):
                    await socket.send(StreamAbort(stream=stream))

    async def _advance(self, flow: Outflow, socket: GreetedSocket, read: Read) -> None:
        """Send the next frame, or what ends the stream, or wait for the server."""
        size = flow.sendable()
        if size > 0:
            payload = await read(flow.offset, size)
            if not payload:
                raise UploadFailed(ErrorCode.SIZE_MISMATCH, "the file became shorter")
            if len(payload) <= flow.sendable():
                await socket.send(flow.frame(payload))
        elif flow.all_sent() and not flow.closing:
            await socket.send(flow.close())
        else:
            received = flow.received
            await socket.until(lambda: flow.has_news(received))


def is_stored(flow: Outflow, state: RoomState) -> bool:
    """Whether an upload is over; raises `UploadFailed` when it ended badly.

    The room's state is asked too: `stream.closed` may be lost with a socket, an event is not.
    """
    if flow.closed is not None:
        if flow.closed.code is not None:
            raise UploadFailed(flow.closed.code, flow.closed.message)
        return True
    asset = state.assets.get(flow.asset) if flow.asset is not None else None
    if asset is not None and asset.status == "failed":
        raise UploadFailed(asset.code or ErrorCode.UPLOAD_ABANDONED, asset.message)
    return asset is not None and asset.status in ("committed", "read")
