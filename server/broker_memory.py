"""The broker of a single process: who publishes is who hears."""

from __future__ import annotations

from collections.abc import Callable

from server.broker import Receive


class MemoryBroker:
    """A `Broker` that never loses a frame and so never calls `on_gap`."""

    def __init__(self) -> None:
        self._receivers: dict[str, Receive] = {}

    async def subscribe(self, room: str, receive: Receive, on_gap: Callable[[str], None]) -> None:
        """See `Broker.subscribe`."""
        self._receivers[room] = receive

    async def unsubscribe(self, room: str) -> None:
        """See `Broker.unsubscribe`."""
        self._receivers.pop(room, None)

    async def publish(self, room: str, frames: list[bytes]) -> None:
        """See `Broker.publish`."""
        if (receive := self._receivers.get(room)) is not None:
            for frame in frames:
                receive(room, frame)

    async def close(self) -> None:
        """See `Broker.close`."""
        self._receivers.clear()
