"""The contract of a broker: how the processes that serve one room hear each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Receive = Callable[[str, bytes], None]
"""Called with a room and a frame, in the order of publishing; must not block."""


class Broker(Protocol):
    """Carries frames from the process that made them to every process with people in the room.

    Frames of one room arrive in the order of `publish`, at most once each. A broker may lose
    frames while its bus is down, and then it calls `on_gap(room)`: whoever listens reads the log
    from its last number. A broker that answers a frame which came from the bus by publishing
    it again is not a Broker.
    """

    async def subscribe(self, room: str, receive: Receive, on_gap: Callable[[str], None]) -> None:
        """Start to hear a room; returns when nothing published from now on is missed."""
        ...

    async def unsubscribe(self, room: str) -> None:
        """Stop to hear a room."""
        ...

    async def publish(self, room: str, frames: list[bytes]) -> None:
        """Send frames of at most 64 KiB each to every subscriber of the room, this one included."""
        ...

    async def close(self) -> None:
        """Let go of the bus."""
        ...
