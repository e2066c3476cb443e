"""Reading, which goes on beside the turns and wants the same processor."""

from __future__ import annotations

from typing import Protocol


class Reads(Protocol):
    """What perception offers (`engine.perception.service.Perception`); from any thread."""

    def is_reading(self) -> bool: ...
    def stand_still(self, is_wanted: bool) -> None: ...


class Neighbour:
    """Perception as the loop deals with it; without any, nothing is ever read."""

    def __init__(self, reads: Reads | None) -> None:
        self._reads = reads
        self._is_hushed = False

    def is_reading(self) -> bool:
        """Whether work that nobody asked for should wait."""
        return self._reads is not None and self._reads.is_reading()

    def hush(self, is_understanding: bool) -> None:
        """Have reading stand still from the time a question begins to be understood until it is."""
        if self._reads is not None and self._is_hushed is not is_understanding:
            self._is_hushed = is_understanding
            self._reads.stand_still(is_understanding)
