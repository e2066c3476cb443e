"""The contract of leases: which process does what only one of several may do."""

from __future__ import annotations

from typing import Protocol


class Leases(Protocol):
    """Who works on what, by room and name, as long as they live.

    A lease that was taken is kept until `let_go`; of a process that dies it ends by itself within
    `length_s`. A lease is no lock on the log: who lost one in a long pause finds out when its
    events no longer hold on the state that they would follow.
    """

    is_shared: bool
    length_s: float

    async def take(self, room: str, name: str) -> bool:
        """Take a lease or keep one's own; False while another has it. Raises `LogUnavailable`."""
        ...

    async def let_go(self, room: str, name: str) -> None:
        """Give a lease back; nothing happens when it is not one's own."""
        ...

    async def is_taken(self, room: str, name: str) -> bool:
        """Whether anybody has it. Raises `LogUnavailable`."""
        ...

    async def close(self) -> None:
        """Give back everything."""
        ...


class OwnLeases:
    """The `Leases` of a single process: nobody else is there."""

    is_shared = False
    length_s = 0.0

    def __init__(self) -> None:
        self._mine: set[tuple[str, str]] = set()

    async def take(self, room: str, name: str) -> bool:
        """See `Leases.take`."""
        self._mine.add((room, name))
        return True

    async def let_go(self, room: str, name: str) -> None:
        """See `Leases.let_go`."""
        self._mine.discard((room, name))

    async def is_taken(self, room: str, name: str) -> bool:
        """See `Leases.is_taken`."""
        return (room, name) in self._mine

    async def close(self) -> None:
        """See `Leases.close`."""
        self._mine.clear()
