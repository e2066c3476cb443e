"""Who is admitted and who runs in a step; knows no tensor and no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.api import TurnKind
from engine.policy import BACKGROUND_WINDOW, Deficits, Pace, shares
from engine.sequence import Sequence, State

# A turn that lacks memory lets this many later ones pass before everybody waits for it.
MAX_BYPASSES = 8
# Seconds by which a later turn of another kind may overtake: who waits longer than that is next,
# whatever comes in. A point of priority is worth as much as this.
PATIENCE_S: dict[TurnKind, float] = {"text": 0.0, "image": 2.0, "video": 5.0, "background": 1e9}
PRIORITY_S = 5.0


@dataclass(frozen=True)
class Slice:
    """What one sequence computes in a step; `samples` when a token is chosen behind it."""

    sequence: Sequence
    tokens: list[int]
    samples: bool


class Scheduler:
    """Turns in order of arrival, kind and priority; at most `max_batch` of them run at once."""

    def __init__(self, max_batch: int, max_step_tokens: int, pace: Pace) -> None:
        self._max_batch = max_batch
        self._max_step_tokens = max_step_tokens
        self._pace = pace
        self._deficits = Deficits()
        self._has_let_pass = False
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    def __iter__(self) -> Iterator[Sequence]:
        return iter([*self.running, *self.waiting])

    def add(self, sequence: Sequence) -> None:
        """Let a turn wait; the caller bounds how many do."""
        self.waiting.append(sequence)
        # Stable, so turns that come at once keep their order.
        self.waiting.sort(key=_place)

    def admit(
        self,
        start: Callable[[Sequence], bool],
        preempt: Callable[[Sequence], bool] = lambda sequence: False,
    ) -> None:
        """Give free slots to waiting turns; `start` says whether a turn could begin.

        A session's turns stay in order: the later one waits while an earlier one is anywhere.
        When there is no slot or no memory, `preempt` makes a lesser turn give its own back; it
        says whether that could be done.
        """
        taken = {_conversation(sequence) for sequence in self.running}
        taken_later = {_conversation(s) for s in self.waiting if s.is_preempted}
        for sequence in list(self.waiting):
            conversation = _conversation(sequence)
            if conversation in taken:
                continue
            if conversation in taken_later and not sequence.is_preempted:
                continue
            if not sequence.is_ready:
                taken.add(conversation)
                continue
            if len(self.running) >= self._max_batch and not self._displace(sequence, preempt):
                # A later one of higher rank may still displace somebody.
                taken.add(conversation)
                continue
            has_begun = start(sequence)
            while not has_begun and self._displace(sequence, preempt):
                has_begun = start(sequence)
            if has_begun:
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

    @property
    def is_background(self) -> bool:
        """Whether something runs, and nobody asked for any of it."""
        return bool(self.running) and all(s.turn.kind == "background" for s in self.running)

    @property
    def is_understanding(self) -> bool:
        """Whether a prompt of text is being computed: somebody waits for a first word."""
        return any(s.state is State.PREFILL and s.turn.kind == "text" for s in self.running)

    def schedule(self, *, is_short: bool = False) -> list[Slice]:
        """Return the step: every decoding sequence, and prompts as far as the window goes.

        Background turns stand still while any other runs. Turns about pictures and videos let a
        prompt of text pass that one short step without them holds, but never twice in a row. With
        `is_short` no prompt makes the step longer than a question may wait for it.
        """
        running = self.running
        if not self.is_background:
            running = [s for s in running if s.turn.kind != "background"]
        words = [s for s in running if s.turn.kind == "text"]
        self._has_let_pass = not self._has_let_pass and self._is_short(words)
        if self._has_let_pass:
            running = words
        decoding = [s for s in running if s.state is State.DECODE]
        prefilling = [s for s in running if s.state is State.PREFILL]
        step = [Slice(sequence, sequence.next_tokens(1), samples=True) for sequence in decoding]
        room = self._pace.window(len(decoding), self._max_step_tokens)
        if self.is_background:
            room = min(room, BACKGROUND_WINDOW)
        if is_short:
            room = min(room, self._pace.quick_window(len(decoding), self._max_step_tokens))
        for sequence, count in self._divide(prefilling, room):
            count = sequence.whole(count)
            is_last = count == sequence.remaining
            step.append(Slice(sequence, sequence.next_tokens(count), samples=is_last))
        return step

    def late(self, now: float) -> list[Sequence]:
        """Return the turns that have not begun by their deadline."""
        return [s for s in self.waiting if (left := _left_s(s, now)) is not None and left <= 0]

    def next_deadline_s(self, now: float) -> float | None:
        """Return in how many seconds the next turn will be late."""
        return min((left for s in self.waiting if (left := _left_s(s, now))), default=None)

    def queue_seconds(self, now: float) -> float:
        """Return how long the turn that waits longest has waited; background ones do not count."""
        waited = [now - s.submitted_at for s in list(self.waiting) if s.turn.kind != "background"]
        return max(waited, default=0.0)

    def remove(self, sequence: Sequence) -> None:
        """Free the sequence's slot or its place in the queue."""
        for turns in (self.running, self.waiting):
            if sequence in turns:
                turns.remove(sequence)

    def _is_short(self, running: list[Sequence]) -> bool:
        """Whether a step of these alone computes a whole prompt and keeps the pace."""
        decoding = sum(s.state is State.DECODE for s in running)
        prompts = sum(s.remaining for s in running if s.state is State.PREFILL)
        return 0 < prompts <= self._pace.quick_window(decoding, self._max_step_tokens)

    def _divide(self, prefilling: list[Sequence], room: int) -> Iterator[tuple[Sequence, int]]:
        kinds: dict[TurnKind, list[Sequence]] = {}
        for sequence in prefilling:
            kinds.setdefault(sequence.turn.kind, []).append(sequence)
        wanted = {kind: sum(s.remaining for s in turns) for kind, turns in kinds.items()}
        for kind, part in self._deficits.divide(wanted, room).items():
            remaining = [sequence.remaining for sequence in kinds[kind]]
            for sequence, count in zip(kinds[kind], shares(remaining, part), strict=True):
                if count:
                    yield sequence, count

    def _displace(self, sequence: Sequence, preempt: Callable[[Sequence], bool]) -> bool:
        """Make the least of the lesser running turns wait; False when there is none."""
        lesser = [s for s in self.running if _rank(s) > _rank(sequence)]
        for victim in sorted(lesser, key=lambda s: (_rank(s), s.started_at), reverse=True):
            if preempt(victim):
                self.running.remove(victim)
                self.add(victim)
                return True
        return False


def _left_s(sequence: Sequence, now: float) -> float | None:
    """Return the seconds until a turn is late; None when it cannot be."""
    if not sequence.turn.deadline_s or sequence.is_preempted:
        return None
    return sequence.submitted_at + sequence.turn.deadline_s - now


def _place(sequence: Sequence) -> float:
    """Return when a turn counts as having come; those that came first are next."""
    turn = sequence.turn
    return sequence.submitted_at + PATIENCE_S[turn.kind] - PRIORITY_S * turn.priority


def _rank(sequence: Sequence) -> tuple[int, float]:
    """Return what decides whether one turn may displace another: the lower goes first."""
    turn = sequence.turn
    return (-turn.priority if turn.kind != "background" else 1 << 30), PATIENCE_S[turn.kind]


def _conversation(sequence: Sequence) -> tuple[str, str]:
    return sequence.turn.tenant, sequence.turn.session
