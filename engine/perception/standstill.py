"""Readers that stand still for a moment, because somebody waits for the first word of an answer."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterable

from engine.perception.pool import WorkerProcess

# Most questions are understood in a third of that on two cores.
MOST_S = 0.3


class StandStill:
    """Stops processes while a question is understood; all on one event loop.

    They stand `MOST_S` at most, and then work at least as long as they stood, so that they have
    half of the time whatever is asked. Nothing stands still on a system that cannot end a process
    with its parent: a stopped one would never notice that it was left alone.
    """

    def __init__(self, workers: Callable[[], Iterable[WorkerProcess]]) -> None:
        self._workers = workers
        self._is_wanted = False
        self._since: float | None = None
        self._works_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def want(self, is_wanted: bool) -> None:
        """Say whether anybody waits for a first word now."""
        if sys.platform == "linux":
            self._is_wanted = is_wanted
            self._look()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._since is not None and (not self._is_wanted or now >= self._since + MOST_S):
            self._works_until = now + (now - self._since)
            self._since = None
            self._signal(signal.SIGCONT)
        if not self._is_wanted:
            return
        if self._since is None and now >= self._works_until:
            self._since = now
            self._signal(signal.SIGSTOP)
        again = self._works_until if self._since is None else self._since + MOST_S
        self._timer = loop.call_at(again, self._look)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers():
            worker.signal(number)
