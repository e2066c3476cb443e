"""A network that breaks on purpose: a port whose connections are cut after so many bytes."""

from __future__ import annotations

import asyncio
import contextlib


class Gate:
    """Forwards to a port of loopback; used on the test's own event loop.

    After `cut_after` bytes of the clients every connection is aborted, without a word, and new
    ones find their way: as when a device changes from one network to another.
    """

    def __init__(self, upstream: int) -> None:
        self.port = 0
        self.cuts = 0
        self.sent_bytes = 0
        self._upstream = upstream
        self._cuts_at: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Gate:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def base(self) -> str:
        """The address of the page behind it."""
        return f"http://127.0.0.1:{self.port}"

    def cut_after(self, *counts: int) -> None:
        """Cut each time the clients have sent so many bytes from now on; counts rise."""
        self._cuts_at = [self.sent_bytes + count for count in counts]

    def cut(self) -> None:
        """Abort every connection now."""
        self.cuts += 1
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        above = None
        try:
            below, above = await asyncio.open_connection("127.0.0.1", self._upstream)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, above, is_sent=True))
                both.create_task(self._copy(below, writer, is_sent=False))
        # Cutting is what this is for.
        except (asyncio.CancelledError, OSError):
            pass
        finally:
            self._tasks.discard(task)
            for each in (writer, above):
                if each is not None:
                    each.transport.abort()

    async def _copy(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_sent: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while block := await source.read(16 * 1024):
                target.write(block)
                await target.drain()
                if is_sent:
                    self.sent_bytes += len(block)
                    if self._cuts_at and self.sent_bytes >= self._cuts_at[0]:
                        self._cuts_at.pop(0)
                        self.cut()
            if target.can_write_eof():
                target.write_eof()
