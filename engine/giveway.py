"""Which turn's coming is reason enough to give up the step under way: numbers, no tensor."""

from __future__ import annotations

from collections.abc import Iterable

from engine.api import TurnKind

# Whoever waits for words comes first, what nobody asked for last.
RANKS: dict[TurnKind, int] = {"text": 0, "image": 1, "video": 1, "background": 2}
_NOBODY = max(RANKS.values())


class GiveWay:
    """A step gives way to a turn of a higher rank than all of its own, and the next one does not.

    So a flood of questions costs the others half of their steps at most. `owes` says that the next
    step of the others is to be computed whatever comes. `note` may be called from any thread, the
    rest from the loop's.
    """

    def __init__(self) -> None:
        self._came = _NOBODY
        self.owes = False

    def note(self, kind: TurnKind) -> None:
        """A turn came."""
        self._came = min(self._came, RANKS[kind])

    def taken(self) -> None:
        """Whatever came has its place among the turns from now on."""
        self._came = _NOBODY

    def is_due(self, rank: int) -> bool:
        """Whether a step of this rank is to be given up."""
        return self._came < rank and not self.owes

    def end(self, rank: int, was_given_up: bool) -> None:
        """A step ended. Those of text never give way, so they pay nothing back."""
        if rank:
            self.owes = was_given_up


def rank_of(kinds: Iterable[TurnKind]) -> int:
    """Return the rank of a step: that of its first turn."""
    return min(RANKS[kind] for kind in kinds)
