"""A recording under way as its sender sees it: sent as it comes, gone on with over reconnects."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType

from protocol.errors import ErrorCode
from protocol.joining import UploadFailed
from protocol.messages import StreamAbort
from protocol.outflow import Outflow
from protocol.uploading import GreetedSocket, SocketLost, Sockets, Uploads, is_stored

# What the server does not hold yet is kept here; at the limit `send` waits for it.
MAX_KEPT_BYTES = 8 * 1024 * 1024


class Microphone:
    """Use it in `async with`: leaving stores the recording, leaving by an exception gives it up.

    `asset` is known from the first `send` on; what is said becomes rows of it as events.
    """

    def __init__(self, flow: Outflow, sockets: Sockets, uploads: Uploads) -> None:
        self._flow = flow
        self._sockets = sockets
        self._uploads = uploads
        self._socket: GreetedSocket | None = None
        self._kept = bytearray()
        self._kept_from = 0

    @property
    def asset(self) -> str | None:
        """The asset that the recording becomes."""
        return self._flow.asset

    async def __aenter__(self) -> Microphone:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()

    async def send(self, chunk: bytes) -> None:
        """Send more of the recording, in the form that was declared, cut anywhere.

        Waits for the connection when there is none. Raises `UploadFailed` when the server does
        not take it.
        """
        self._kept += chunk
        self._flow.size += len(chunk)
        await self._go_on(is_last=False)
        while len(self._kept) > MAX_KEPT_BYTES and self._flow.closed is None:
            await self._go_on(is_last=False, waits=True)
        if self._flow.closed is not None:
            is_stored(self._flow, self._sockets.session.state)
            raise UploadFailed(ErrorCode.STREAM_UNKNOWN, "the recording has ended")

    async def close(self) -> str:
        """Say that it is over; return the asset's id once it is stored. Raises `UploadFailed`."""
        self._flow.is_whole = True
        try:
            while not is_stored(self._flow, self._sockets.session.state):
                await self._go_on(is_last=True, waits=True)
        finally:
            self._uploads.end(self._flow)
        assert self._flow.asset is not None, "a stored recording has its asset"
        return self._flow.asset

    async def abort(self) -> None:
        """Give the recording up."""
        if self._socket is not None and self._flow.closed is None:
            with suppress(SocketLost):
                await self._socket.send(StreamAbort(stream=self._flow.stream))
        self._uploads.end(self._flow)

    async def _go_on(self, *, is_last: bool, waits: bool = False) -> None:
        """Send what may be sent now, on a fresh socket if need be; `waits` for what comes next."""
        flow = self._flow
        try:
            if self._socket is None:
                self._socket = await self._open()
            while (size := flow.sendable()) > 0:
                start = flow.offset - self._kept_from
                await self._socket.send(flow.frame(bytes(self._kept[start : start + size])))
            if is_last and flow.all_sent() and not flow.closing:
                await self._socket.send(flow.close())
            if waits:
                received = flow.received
                await self._socket.until(lambda: flow.has_news(received))
        except SocketLost:
            # The next act opens another; until then everything is kept.
            self._socket = None
        del self._kept[: flow.received - self._kept_from]
        self._kept_from = flow.received

    async def _open(self) -> GreetedSocket:
        socket = await self._sockets.greeted()
        self._uploads.end(self._flow)
        await socket.send(self._flow.ask(self._uploads.begin(self._flow)))
        await socket.until(lambda: self._flow.opened or self._flow.closed is not None)
        return socket
