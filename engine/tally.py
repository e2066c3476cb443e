"""What the steps of the model computed, and what they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from engine.policy import Pace
from engine.scheduler import Slice
from engine.sequence import State


class Tally:
    """Counts steps, and tells what they cost to whoever decides by it."""

    def __init__(self, pace: Pace, note_computed: Callable[[int, float], None]) -> None:
        self._pace = pace
        self._note_computed = note_computed
        self._counters: Counter[str] = Counter()
        self._seconds = 0.0

    def note(self, step: list[Slice], seconds: float) -> None:
        """Learn from a step, before its sequences move on."""
        prompts = [len(p.tokens) for p in step if p.sequence.state is State.PREFILL]
        decoding = len(step) - len(prompts)
        self._pace.note(decoding, sum(prompts), seconds)
        if not decoding:
            self._note_computed(sum(prompts), seconds)
        self._counters["steps"] += 1
        self._counters["tokens_prefilled"] += sum(prompts)
        self._seconds += seconds

    def gauges(self) -> dict[str, float]:
        """Return what is believed now; may be asked from any thread."""
        return {"prompt_token_seconds": self._pace.prompt_token_s}

    def counters(self) -> dict[str, float]:
        """Return what happened since the start; may be asked from any thread."""
        counted = {name: float(count) for name, count in dict(self._counters).items()}
        return {**counted, "step_seconds": self._seconds}
