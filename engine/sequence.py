"""One session's memory and one turn's way through the steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum

import torch

from engine.answers import Finish
from engine.api import Turn, TurnEvent
from engine.kv.context import Context
from engine.models.guide import Guide
from engine.models.layout import Layout, Picture
from engine.models.sampling import Sampling, choose, confidence, penalise
from engine.prompt import Prompt
from engine.text.answer import AnswerText

# Older answers are tokenised again from their text: the KV behind them is lost by then anyway.
MAX_ANSWERS = 256


class State(Enum):
    """Where a turn is; it moves downwards, but for one that is preempted: that waits again."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    ENDED = "ended"


@dataclass(eq=False)
class Session:
    """What is kept between the turns of one conversation."""

    key: str
    context: Context
    # The tokens the model made for each turn, so that its text need not be tokenised again.
    answers: OrderedDict[str, list[int]] = field(default_factory=OrderedDict)
    is_busy: bool = False
    is_dropped: bool = False

    def remember(self, turn: str, tokens: list[int]) -> None:
        """Keep the tokens of an answer."""
        self.answers[turn] = tokens
        while len(self.answers) > MAX_ANSWERS:
            self.answers.popitem(last=False)


@dataclass(eq=False)
class Sequence:
    """One turn from intake to its last event. Times are seconds of the loop's clock."""

    turn: Turn
    emit: Callable[[TurnEvent], None]
    submitted_at: float
    sampling: Sampling
    guide: Guide | None = None
    state: State = State.WAITING
    is_cancelled: bool = False
    session: Session | None = None
    # The turn's pictures, under way; None when it has none or the model takes none.
    sight: Future[dict[str, tuple[Picture, ...]]] | None = None
    # Its session on the way from disk; it is pinned in RAM while `is_wanting`.
    fetch: Future[None] | None = None
    is_wanting: bool = False
    prompt: Prompt | None = None
    layout: Layout = field(default_factory=Layout)
    answer: AnswerText | None = None
    cached_tokens: int = 0
    made: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    bypassed: int = 0
    preemptions: int = 0
    started_at: float = 0.0
    first_token_at: float = 0.0
    shown_at: float = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether all that its prompt needs is there."""
        return all(future is None or future.done() for future in (self.sight, self.fetch))

    @property
    def pictures(self) -> dict[str, tuple[Picture, ...]]:
        """What the model is given as pixels, by media id; only of a ready sequence."""
        return self.sight.result() if self.sight is not None else {}

    @property
    def context(self) -> Context:
        """The session's KV; only a running sequence has one."""
        assert self.session is not None, "a sequence is run only after it was admitted"
        return self.session.context

    @property
    def prompt_tokens(self) -> list[int]:
        """The tokens of the prompt; only a running sequence has them."""
        assert self.prompt is not None, "a sequence is run only after it was prepared"
        return self.prompt.tokens

    @property
    def is_preempted(self) -> bool:
        """Whether it had begun and waits to go on."""
        return self.state is State.WAITING and self.answer is not None

    @property
    def written(self) -> list[int]:
        """All tokens of prompt and answer so far; the last one's keys and values are missing."""
        return self.prompt_tokens + self.made

    @property
    def remaining(self) -> int:
        """Tokens that still have to be computed before the next one can be chosen."""
        return max(len(self.prompt_tokens) + len(self.made) - self.context.length, 0)

    def whole(self, count: int) -> int:
        """Return how many tokens to compute instead of `count`, so that no picture is cut.

        That is `count` for models that read pictures from left to right.
        """
        return self.layout.whole(self.context.length, count)

    def next_tokens(self, count: int) -> list[int]:
        """Return the next `count` tokens that a step computes."""
        start, prompt = self.context.length, self.prompt_tokens
        if start >= len(prompt):
            start -= len(prompt)
            return self.made[start : start + count]
        return [*prompt[start : start + count], *self.made[: max(start + count - len(prompt), 0)]]


def take_token(
    sequence: Sequence, logits: torch.Tensor, end_tokens: Container[int], max_context: int
) -> Finish | None:
    """Choose the next token by `logits` [vocabulary] and add it to the answer.

    Returns why the answer ends with it, None when it goes on. A token that only says that the
    answer is over is not added.
    """
    answer = sequence.answer
    assert answer is not None, "an admitted sequence has an answer"
    token = _chosen(sequence, logits)
    if token in end_tokens or token in sequence.turn.stop_tokens:
        return "stop"
    sequence.made.append(token)
    sequence.confidences.append(confidence(logits, token))
    answer.push(token)
    is_whole = sequence.guide is not None and sequence.guide.accept(token)
    if answer.stopped or is_whole:
        return "stop"
    is_long = len(sequence.made) >= sequence.turn.max_new_tokens
    return "length" if is_long or sequence.context.length + 1 >= max_context else None


def _chosen(sequence: Sequence, logits: torch.Tensor) -> int:
    if sequence.sampling.is_penalising:
        logits = penalise(logits, sequence.sampling, sequence.prompt_tokens, sequence.made)
    if sequence.guide is not None:
        logits = sequence.guide.allow(logits)
    return choose(logits, sequence.sampling, sequence.context.length)
