"""Items that come one by one, handed on in groups: the first at once, then each window."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_WAITING = 1_024


class Gather(Generic[T]):
    """Iterates over lists of what `source` yields.

    A group goes out when `window_s` passed since the one before, or at once when the source
    ended. `stop` ends it early; `close` must be called at the end and closes the source.
    """

    def __init__(self, source: AsyncIterator[T], window_s: float) -> None:
        self._source = source
        self._window_s = window_s
        self._items: deque[T] = deque()
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._is_over = False
        self._is_stopped = False
        self._pump = asyncio.create_task(self._pump_all(), name="gather")

    def stop(self) -> None:
        """End the iteration now; what was not handed on is dropped."""
        self._is_stopped = True
        self._changed.set()

    async def close(self) -> None:
        """Stop reading the source and close it."""
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)

    async def groups(self) -> AsyncGenerator[list[T], None]:
        """Yield the groups; raises what the source raised."""
        loop = asyncio.get_running_loop()
        next_at = 0.0
        while True:
            while not (self._items or self._is_over or self._is_stopped):
                await self._change()
            await self._wait_until(next_at)
            if self._is_stopped:
                return
            if not self._items:
                await self._pump
                return
            group = list(self._items)
            self._items.clear()
            self._taken.set()
            next_at = loop.time() + self._window_s
            yield group

    async def _wait_until(self, at: float) -> None:
        try:
            async with asyncio.timeout_at(at):
                while not (self._is_over or self._is_stopped):
                    await self._change()
        except TimeoutError:
            pass

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _pump_all(self) -> None:
        try:
            async for item in self._source:
                self._items.append(item)
                self._changed.set()
                while len(self._items) >= MAX_WAITING:
                    # The source waits, which happens only while the log is slow.
                    self._taken.clear()
                    await self._taken.wait()
        finally:
            self._is_over = True
            self._changed.set()
            if isinstance(self._source, AsyncGenerator):
                await self._source.aclose()
