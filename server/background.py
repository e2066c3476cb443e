"""A scope for work that outlives a connection: nothing is forgotten, all of it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import structlog

log = structlog.get_logger(__name__)

CANCEL_AGAIN_S = 0.5


async def end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and return when they ended.

    Cancelled again when need be: redis-py takes a cancellation that comes while it drops a
    connection for its own, and the task goes on.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)


class Background:
    """Holds tasks until they end; `close` cancels what is left and waits for it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Run `work` in this scope; a fault in it is logged and ends it alone."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel everything and return when it ended."""
        await end(*self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed", work=task.get_name(), exc_info=error)
