"""Somebody who keeps all that a broker says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE_S = 10.0


class Ears:
    """`Ears` of a room; `until` waits for something heard."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.notes: list[tuple[str, bytes]] = []
        self.gaps = 0
        self._changed = asyncio.Event()

    def event(self, frame: bytes) -> None:
        """See `Ears.event`."""
        self.frames.append(frame)
        self._changed.set()

    def note(self, node: str, note: bytes) -> None:
        """See `Ears.note`."""
        self.notes.append((node, note))
        self._changed.set()

    def gap(self) -> None:
        """See `Ears.gap`."""
        self.gaps += 1
        self._changed.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        """Return when enough was heard."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()
