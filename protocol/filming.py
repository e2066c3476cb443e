"""A camera as its owner sees it: stills that are sent or given up, never kept for later."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType

from protocol.joining import UploadFailed
from protocol.media import Flags
from protocol.outflow import Outflow
from protocol.uploading import GreetedSocket, SocketLost, Sockets, Uploads


class Camera:
    """Use it in `async with`; leaving ends the camera.

    `asset` is known from the first `send` on. What is read on its stills becomes rows of it as
    events, and `asset.camera` messages tell how many stills were passed over.
    """

    def __init__(self, flow: Outflow, sockets: Sockets, uploads: Uploads) -> None:
        self._flow = flow
        self._sockets = sockets
        self._uploads = uploads
        self._socket: GreetedSocket | None = None

    @property
    def asset(self) -> str | None:
        """The asset that the camera's stills belong to."""
        return self._flow.asset

    async def __aenter__(self) -> Camera:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()

    async def send(self, jpeg: bytes, pts_us: int) -> bool:
        """Send a still that was taken at `pts_us`, microseconds of any clock that never goes back.

        False when the connection was lost with it: the next one goes over a fresh connection, in
        the same asset. Raises `UploadFailed` when the server has ended the camera.
        """
        flow = self._flow
        try:
            if self._socket is None:
                self._socket = await self._open()
            sent = 0
            flow.size = flow.offset + len(jpeg)
            while sent < len(jpeg) and flow.closed is None:
                await self._socket.until(lambda: flow.sendable() > 0 or flow.closed is not None)
                size = flow.sendable()
                if not size:
                    break
                is_last = sent + size == len(jpeg)
                flags = Flags.LAST_OF_STILL if is_last else 0
                frame = flow.frame(jpeg[sent : sent + size], pts_us=pts_us, flags=flags)
                await self._socket.send(frame)
                sent += size
        except SocketLost:
            self._socket = None
            return False
        self._check()
        return True

    async def close(self) -> str | None:
        """End the camera; returns its asset's id, `None` when no still was ever sent."""
        flow = self._flow
        with suppress(SocketLost):
            if self._socket is not None and flow.closed is None:
                await self._socket.send(flow.close())
                await self._socket.until(lambda: flow.closed is not None)
        self._uploads.end(flow)
        return flow.asset

    def _check(self) -> None:
        closed = self._flow.closed
        if closed is not None and closed.code is not None:
            raise UploadFailed(closed.code, closed.message)

    async def _open(self) -> GreetedSocket:
        socket = await self._sockets.greeted()
        self._uploads.end(self._flow)
        self._flow.closed = None
        await socket.send(self._flow.ask(self._uploads.begin(self._flow)))
        await socket.until(lambda: self._flow.opened or self._flow.closed is not None)
        self._check()
        return socket
