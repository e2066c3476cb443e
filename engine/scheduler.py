"""Who is admitted and who runs in a step; knows no tensor and no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.policy import shares, window
from engine.sequence import Sequence, State

# A turn that lacks memory lets this many later ones pass before everybody waits for it.
MAX_BYPASSES = 8


@dataclass(frozen=True)
class Slice:
    """What one sequence computes in a step; `samples` when a token is chosen behind it."""

    sequence: Sequence
    tokens: list[int]
    samples: bool


class Scheduler:
    """Turns in order of priority and arrival; at most `max_batch` of them run at once."""

    def __init__(self, max_batch: int, max_step_tokens: int) -> None:
        self._max_batch = max_batch
        self._max_step_tokens = max_step_tokens
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    def __iter__(self) -> Iterator[Sequence]:
        return iter([*self.running, *self.waiting])

    def add(self, sequence: Sequence) -> None:
        """Let a turn wait; the caller bounds how many do."""
        self.waiting.append(sequence)
        # Stable, so turns of equal priority keep their order of arrival.
        self.waiting.sort(key=lambda waiting: -waiting.turn.priority)

    def admit(self, start: Callable[[Sequence], bool]) -> None:
        """Give free slots to waiting turns; `start` says whether a turn could begin.

        A session's turns stay in order: the later one waits while an earlier one is anywhere.
        """
        taken = {_conversation(sequence) for sequence in self.running}
        for sequence in list(self.waiting):
            if len(self.running) >= self._max_batch:
                return
            conversation = _conversation(sequence)
            if conversation in taken:
                continue
            if not sequence.is_ready:
                taken.add(conversation)
                continue
            if start(sequence):
                # One that was refused at its start holds up nobody: with no turn running there
                # would be no later step in which the next one of its session is looked at.
                if sequence.state is not State.ENDED:
                    taken.add(conversation)
                    self.waiting.remove(sequence)
                    self.running.append(sequence)
                continue
            taken.add(conversation)
            sequence.bypassed += 1
            if sequence.bypassed > MAX_BYPASSES:
                return

    def schedule(self) -> list[Slice]:
        """Return the step: every decoding sequence, and prompts as far as the window goes."""
        decoding = [s for s in self.running if s.state is State.DECODE]
        prefilling = [s for s in self.running if s.state is State.PREFILL]
        step = [Slice(sequence, sequence.next_tokens(1), samples=True) for sequence in decoding]
        remaining = [sequence.remaining_prompt for sequence in prefilling]
        room = window(len(decoding), self._max_step_tokens)
        for sequence, count in zip(prefilling, shares(remaining, room), strict=True):
            if count:
                whole = count == sequence.remaining_prompt
                step.append(Slice(sequence, sequence.next_tokens(count), samples=whole))
        return step

    def remove(self, sequence: Sequence) -> None:
        """Free the sequence's slot or its place in the queue."""
        for turns in (self.running, self.waiting):
            if sequence in turns:
                turns.remove(sequence)


def _conversation(sequence: Sequence) -> tuple[str, str]:
    return sequence.turn.tenant, sequence.turn.session
