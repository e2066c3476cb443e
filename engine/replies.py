"""What the asker of a turn hears of it, and what is counted of that."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from engine.api import EngineCode, TurnCancelled, TurnDone, TurnEvent, TurnFailed, TurnStarted
from engine.sequence import Sequence


class Replies:
    """Events of turns, made in the loop's thread; `counters` may be read from any."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.counters: Counter[str] = Counter()

    def start(self, sequence: Sequence) -> None:
        """Tell what the model reads."""
        prompt = sequence.prompt
        assert prompt is not None, "a turn starts with its prompt"
        self.counters["turns_started"] += 1
        self.counters["tokens_cached"] += sequence.cached_tokens
        sequence.emit(
            TurnStarted(
                turn=sequence.turn.id,
                model=self._model,
                prompt=prompt.text,
                prompt_tokens=len(prompt.tokens),
                cached_tokens=sequence.cached_tokens,
                sight="pixels" if prompt.shows else "text" if prompt.seen else "none",
            )
        )

    def show(self, sequence: Sequence, *, final: bool = False) -> None:
        """Tell what can be shown of the answer; `final` gives all that was held."""
        assert sequence.answer is not None, "an admitted sequence has an answer"
        for event in sequence.answer.take(final=final):
            sequence.emit(event)

    def done(self, sequence: Sequence, finish: Literal["stop", "length"], now: float) -> TurnDone:
        """Tell the rest of the answer; returns its last word."""
        answer = sequence.answer
        assert answer is not None, "an admitted sequence has an answer"
        self.show(sequence, final=True)
        self.counters[f"turns_done_{finish}"] += 1
        return TurnDone(
            turn=sequence.turn.id,
            text=answer.text,
            token_ids=tuple(sequence.made),
            finish=finish,
            prompt_tokens=len(sequence.prompt_tokens),
            cached_tokens=sequence.cached_tokens,
            confidences=tuple(sequence.confidences),
            timings={
                "queued": sequence.started_at - sequence.submitted_at,
                "first_token": sequence.first_token_at - sequence.submitted_at,
                "total": now - sequence.submitted_at,
            },
        )

    def failed(self, sequence: Sequence, code: EngineCode, message: str) -> TurnEvent:
        """Return the last word of a turn that failed."""
        self.counters[f"turns_failed_{code.value}"] += 1
        return TurnFailed(turn=sequence.turn.id, code=code, message=message)

    def cancelled(self, sequence: Sequence) -> TurnEvent:
        """Tell what was held of a turn that is cut off; returns its last word."""
        if sequence.answer is not None:
            for event in sequence.answer.cut():
                sequence.emit(event)
        self.counters["turns_cancelled"] += 1
        return TurnCancelled(turn=sequence.turn.id, token_ids=tuple(sequence.made))
