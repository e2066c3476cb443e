"""How one connection hears its room: live, or from the log at the client's own pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from protocol.room import RoomState
from protocol.state import Snapshot
from server.log import Gap, Log, LogUnavailable
from server.outbox import Outbox
from server.room import Room

PAGE_EVENTS = 256
LOG_RETRY_S = 0.5


class Feed:
    """A `Member` of a room that writes into an outbox.

    `announce` writes a welcome with a snapshot into the outbox: for a client that missed more
    than `resume_events` events, reading them one by one would never end.
    """

    def __init__(
        self,
        room: Room,
        log: Log,
        outbox: Outbox,
        *,
        wake: Callable[[], None],
        announce: Callable[[Snapshot], None],
        resume_events: int,
        page_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._room = room
        self._log = log
        self._outbox = outbox
        self._wake = wake
        self._announce = announce
        self._resume_events = resume_events
        self._page_bytes = page_bytes
        self._clock = clock
        self._has_work = asyncio.Event()

    @property
    def head(self) -> int:
        """The room's head, as far as this client can be expected to know it."""
        if self._outbox.has_ordered or self._outbox.is_behind:
            return self._outbox.sent_seq
        return self._room.head.seq

    def start(self, state: RoomState, epoch: str | None, seq: int) -> bool:
        """Begin to hear the room; False when what was missed is too much or cannot be proven.

        Called while the state equals the log, before this feed is a member.
        """
        is_known = epoch == state.epoch and 0 <= state.seq - seq <= self._resume_events
        start = seq if is_known else state.seq
        self._outbox.start_at(start, is_behind=start < state.seq)
        self._has_work.set()
        return is_known

    def deliver(self, seq: int, frame: bytes) -> None:
        """See `Member.deliver`."""
        self._outbox.put_event(seq, frame)
        if self._outbox.is_behind:
            self._has_work.set()
        self._wake()

    def show(self, key: str, frame: bytes) -> None:
        """See `Member.show`."""
        self._outbox.put_lossy(key, frame, self._clock())
        self._wake()

    def drained(self) -> None:
        """Say that the transport took something."""
        if self._outbox.is_behind:
            self._has_work.set()

    async def catch_up_until_cancelled(self) -> None:
        """Read from the log whenever the outbox is behind and has room again."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            # Only a client that keeps up is given more: for one that takes nothing, pages and
            # snapshots would pile up.
            if self._outbox.is_behind and self._outbox.is_idle:
                try:
                    await self._catch_up()
                except LogUnavailable:
                    await asyncio.sleep(LOG_RETRY_S)
                    self._has_work.set()

    async def _catch_up(self) -> None:
        position = self._outbox.position
        if self._room.head.seq - position > self._resume_events:
            await self._start_over()
            return
        page = await self._log.page(
            self._room.name,
            self._room.head.epoch,
            position,
            max_events=PAGE_EVENTS,
            max_bytes=self._page_bytes,
        )
        if isinstance(page, Gap):
            await self._start_over()
            return
        for appended in page.events:
            if not self._outbox.put_from_log(appended.event.seq, appended.frame):
                break
        if self._outbox.position >= self._room.head.seq:
            # No await since the head was read: nothing can have been published in between. What
            # the log held ahead of that is dropped when it comes live: its number was queued.
            self._outbox.resume()
        self._wake()

    async def _start_over(self) -> None:
        def show(state: RoomState) -> None:
            self._announce(state.snapshot())
            self._outbox.start_at(state.seq, is_behind=False)

        await self._room.between(show)
        self._wake()
