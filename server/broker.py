"""The contract of a broker: how the processes that serve one room hear each other."""

from __future__ import annotations

from typing import Protocol

MAX_PAYLOAD_BYTES = 64 * 1024
"""What one message on the bus may have: Redis cuts a subscriber whose backlog passes 32 MB."""


class Ears(Protocol):
    """What a process does with what it hears about one room; no call may block."""

    def event(self, frame: bytes) -> None:
        """A numbered event, as the log has it; one may be missing before it, or come twice."""
        ...

    def note(self, node: str, note: bytes) -> None:
        """Another process said something that no log keeps."""
        ...

    def gap(self) -> None:
        """Events may have been missed: read the log from the last known number."""
        ...


class Broker(Protocol):
    """Tells every process of a room what the others do in it.

    Events are published by the append that numbers them and heard in their order; the log is the
    truth about them, so a broker may lose some while its bus is down, and then calls `gap`. Notes
    are lossy. A broker that lets a process hear its own notes, or that answers a message of the
    bus by publishing it again, is not a Broker.
    """

    notes_dropped: int
    """How many notes were not sent because too many waited, or the bus was down."""

    @property
    def is_up(self) -> bool:
        """Whether the others are heard now; no answer of the bus for some seconds means no."""
        ...

    async def subscribe(self, room: str, ears: Ears) -> None:
        """Start to hear a room; returns when nothing published from now on is missed unsaid."""
        ...

    async def unsubscribe(self, room: str) -> None:
        """Stop to hear a room."""
        ...

    def tell(self, room: str, note: bytes) -> None:
        """Send a note of at most `MAX_PAYLOAD_BYTES` to the others; never waits, may lose it."""
        ...

    async def close(self) -> None:
        """Let go of the bus."""
        ...
