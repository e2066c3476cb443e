"""The contract of a room's log: the truth about what happened, in one order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from protocol.events import Event
from protocol.state import Snapshot


class LogUnavailable(Exception):
    """The log cannot be read or written now; nothing of the call happened."""


class Overtaken(Exception):
    """Another process appended after the position that the caller knew; nothing happened."""


Act = tuple[str, str]
"""A participant and an `op_id`: what somebody did, whether it got its number or not."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An event without its number.

    `participant` and the event's `op_id` together name the act for good: the same pair never
    gets two numbers. `participant` is "" for what the server itself does; its `op_id` is then
    chosen so that a repetition after a crash is recognised, or "" where none can happen.
    """

    event: Event
    participant: str = ""


@dataclass(frozen=True, slots=True)
class Appended:
    """A numbered event and its frame: the JSON bytes that go to every socket as they are.

    `duplicate` says that the act had its number before; the event is then the first one.
    """

    event: Event
    frame: bytes
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a room's log; `seq` is 0 for a room where nothing happened yet."""

    epoch: str
    seq: int


@dataclass(frozen=True, slots=True)
class History:
    """The events after a position, none missing in between, oldest first; `head` is the end."""

    events: tuple[Appended, ...]
    head: Head


@dataclass(frozen=True, slots=True)
class Gap:
    """What was asked for cannot be given whole: other epoch, trimmed, or never existed."""

    head: Head


class Log(Protocol):
    """The truth about a room.

    `append` is one atomic act for all its drafts: it drops acts that it has seen, gives the next
    numbers, writes durably, and only then returns. If it raises, nothing happened. A log that
    numbers first and writes later is not a Log: after a crash it has acknowledged what it does
    not have. A log that several processes share (`is_shared`) makes every event heard at the
    broker in the same act, and may wait while it cannot know whether an append happened.
    """

    is_shared: bool

    async def head(self, room: str) -> Head:
        """Return the end of the log; a room in which nothing happened yet leaves no trace."""
        ...

    async def append(
        self, room: str, drafts: Sequence[Draft], after: Head | None = None
    ) -> list[Appended]:
        """Number and keep the drafts in this order; one result for each draft.

        With `after`, raises `Overtaken` when the log does not end there.
        """
        ...

    async def find(self, room: str, acts: Iterable[Act]) -> dict[Act, Appended]:
        """Return the first events of those acts that have a number, as duplicates."""
        ...

    async def since(self, room: str, epoch: str, seq: int, limit: int) -> History | Gap:
        """Return every event after `(epoch, seq)`; a `Gap` when there are more than `limit`."""
        ...

    async def page(
        self, room: str, epoch: str, seq: int, *, max_events: int, max_bytes: int
    ) -> History | Gap:
        """Return the first events after `(epoch, seq)`: at least one if there is any."""
        ...

    async def snapshot(self, room: str) -> Snapshot | None:
        """Return the newest stored snapshot of the room's epoch."""
        ...

    async def store_snapshot(self, room: str, snapshot: Snapshot) -> int:
        """Keep a snapshot, so that a late load reads it and the tail; return its bytes."""
        ...

    async def rooms(self) -> list[str]:
        """List the rooms that have a log."""
        ...

    async def probe(self) -> None:
        """Write a trifle durably; raises `LogUnavailable` when that cannot be done now."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and let go of the store."""
        ...
