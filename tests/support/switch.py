"""A port in front of two workers that seats the people of one room at them in turn."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import threading
from collections import defaultdict

from tests.support.workers import workers_of

_HEAD_BYTES = 64 * 1024
_ACCEPT_S = 5.0
_ROOM = re.compile(rb"GET (/v1/rooms/[^ ?]+)[^ ]* HTTP/1\.1")


class Switch:
    """Forwards connections to `port`, whose workers belong to the process `parent`.

    The sockets of a room go to one worker after the other; whatever else is asked over HTTP goes
    to whichever takes it.
    """

    def __init__(self, parent: int, port: int) -> None:
        self.port = 0
        self.seats: dict[str, list[int]] = defaultdict(list)
        self._parent = parent
        self._upstream = port
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="switch", daemon=True)

    def start(self) -> Switch:
        """Listen on a free port of loopback."""
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def stop(self) -> None:
        """End with every connection."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(reader, writer)
        # Only when the switch is stopped; a task of the stream server may not end by it.
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            seat = None
            room = _ROOM.match(head)
            if room is not None and b"upgrade: websocket" in head.lower():
                seat = await self._next_seat(room[1].decode())
            below, above = await self._connect(seat)
            above.write(head)
            copying = [
                asyncio.create_task(_copy(reader, above)),
                asyncio.create_task(_copy(below, writer)),
            ]
            try:
                await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
                # What one side still says when the other has ended is read to its end.
                await asyncio.wait(copying, timeout=1)
            finally:
                for each in copying:
                    each.cancel()
                await asyncio.gather(*copying, return_exceptions=True)
                above.transport.abort()

    async def _next_seat(self, room: str) -> int | None:
        """The worker that has the fewest seats of this room so far."""
        workers = [worker.pid for worker in await asyncio.to_thread(workers_of, self._parent)]
        if not workers:
            return None
        taken = self.seats[room]
        seat = min(workers, key=taken.count)
        taken.append(seat)
        return seat

    async def _connect(self, seat: int | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect until the wanted worker takes it: the kernel gives it to any of them."""
        for _ in itertools.count():
            reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream)
            own = writer.get_extra_info("sockname")[1]
            if seat is None or await self._taken_by(own) in (seat, None):
                return reader, writer
            writer.transport.abort()
        raise AssertionError("unreachable")

    async def _taken_by(self, port: int) -> int | None:
        """The worker that accepted our connection; None when nobody did in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ACCEPT_S):
                while True:
                    pid = await asyncio.to_thread(_holder, self._parent, port)
                    if pid is not None:
                        return pid
        return None


def _holder(parent: int, port: int) -> int | None:
    import psutil

    for worker in workers_of(parent):
        with contextlib.suppress(psutil.Error):
            for connection in worker.net_connections("tcp"):
                if connection.raddr and connection.raddr.port == port:
                    return worker.pid
    return None


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while block := await source.read(_HEAD_BYTES):
            target.write(block)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
