"""Leaving well: tell everybody, let turns finish, and only then let uvicorn close the sockets.

uvicorn closes every socket with 1012 before the lifespan's shutdown runs, so all of this
happens before `should_exit`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import structlog

from server.health import Health
from server.hub import Hub
from server.turns import Turns

log = structlog.get_logger(__name__)

POLL_S = 0.05
LAST_WORD_S = 1.0
# All clients come back within this span, not in the same second.
RETURN_SPAN_S = 5.0


class Drain:
    """One drain of one process; `draw` gives numbers in `[0, 1)`."""

    def __init__(
        self,
        hub: Hub,
        turns: Turns,
        health: Health,
        drain_s: float,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._hub = hub
        self._turns = turns
        self._health = health
        self._drain_s = drain_s
        self._draw = draw

    @property
    def has_begun(self) -> bool:
        """Whether nobody new is let in."""
        return self._health.is_draining

    async def run(self) -> None:
        """Say goodbye and return when every socket is closed, or the time is over."""
        if self.has_begun:
            return
        self._health.is_draining = True
        log.info("draining", connections=len(self._hub.connections), turns=len(self._turns))
        for seat in list(self._hub.connections.values()):
            seat.go_away(1.0 + self._draw() * RETURN_SPAN_S)
        await self._wait(lambda: not len(self._turns), self._drain_s)
        self._turns.interrupt_all()
        await self._wait(lambda: not len(self._turns), LAST_WORD_S)
        for seat in list(self._hub.connections.values()):
            seat.part()
        await self._wait(lambda: not self._hub.connections, LAST_WORD_S)

    async def _wait(self, is_so: Callable[[], bool], limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                # What is waited for ends in many places, and a drain is not in a hurry.
                while not is_so():  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            pass
