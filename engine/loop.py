"""The batching loop: one thread that owns the model, the sessions and their KV."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

import torch

from engine.answers import Answers, Finish, KnownAnswer
from engine.api import EngineCode, EngineError, Stats, Turn, TurnEvent
from engine.config import EngineConfig
from engine.giveway import GiveWay, rank_of
from engine.intake import Intake
from engine.models.backend import Segment, StepAbandoned
from engine.models.guide import Guide
from engine.models.loaded import LoadedModel
from engine.models.sampling import Sampling
from engine.neighbour import Neighbour, Reads
from engine.policy import Pace
from engine.prompt import Prompt, PromptTooLong
from engine.prompter import Prompter
from engine.replies import Replies
from engine.scheduler import Scheduler, Slice
from engine.sequence import Sequence, Session, State, take_token
from engine.sessions import Sessions
from engine.sight import Sight, by_kind
from engine.tally import Tally
from engine.text.answer import AnswerText

log = logging.getLogger(__name__)

# A turn that gave way this often gives way no more, so that every turn comes to its end.
MAX_PREEMPTIONS = 2
# How often it is looked whether perception still reads.
READING_S = 0.05


class Loop:
    """Runs turns step by step. Its methods may be called from any thread.

    Background turns stand still while anything is read, and reading stands still for a moment
    while a question is understood.
    """

    def __init__(
        self, config: EngineConfig, model: LoadedModel, reads: Reads | None = None
    ) -> None:
        self._neighbour = Neighbour(reads)
        self._way = GiveWay()
        self._config = config
        self._model = model
        pace = Pace(config.inter_token_s)
        self._scheduler = Scheduler(config.max_batch, config.max_step_tokens, pace)
        self._replies = Replies(model.name)
        self._answers = Answers(config.answer_cache_bytes)
        self._sessions = Sessions(config, model.backend)
        self._tally = Tally(pace, self._sessions.note_computed)
        self._sight = (
            Sight(model.eyes, config.feature_cache_bytes, config.max_pictures, model.eyes.ears)
            if model.eyes is not None
            else None
        )
        self._intake = Intake()
        self._stopping = False
        self._live: dict[str, Sequence] = {}
        self._counters: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="engine-loop", daemon=True)
        limit = model.backend.max_context
        self.max_context = min(limit, config.max_context or limit)
        self._prompter = Prompter(model, self.max_context)

    # -- called from outside --------------------------------------------------------------------

    def start(self) -> None:
        """Begin to run; call once."""
        self._sessions.start()
        self._thread.start()

    def stop(self) -> None:
        """End every turn with `engine_lost` and wait for the thread."""
        with self._intake.changed:
            self._stopping = True
            self._intake.changed.notify()
        self._thread.join()
        self._sessions.stop()
        if self._sight is not None:
            self._sight.stop()

    def submit(
        self, turn: Turn, emit: Callable[[TurnEvent], None], guide: Guide | None = None
    ) -> None:
        """Queue a turn. `emit` is called from the loop's thread, last with a terminal event.

        Raises `EngineError` when the turn is refused; then `emit` is never called.
        """
        if self._sight is not None:
            turn = by_kind(turn, hears=self._sight.hears)
        sequence = Sequence(turn, emit, time.monotonic(), Sampling.of(turn), guide)
        with self._intake.changed:
            if self._stopping:
                raise EngineError(EngineCode.ENGINE_LOST, "The engine is stopping.")
            if turn.id in self._live:
                raise EngineError(EngineCode.INTERNAL, "A turn of this id is running already.")
            if len(self._live) >= self._config.max_waiting + self._config.max_batch:
                self._counters["turns_overloaded"] += 1
                raise EngineError(EngineCode.OVERLOADED, "Too many questions are waiting.")
            self._live[turn.id] = sequence
            self._way.note(turn.kind)
            if self._sight is not None:
                sequence.sight = self._sight.look(turn, self._intake.wake)
        self._intake.call(lambda: self._add(sequence))

    def cancel(self, turn: str) -> bool:
        """End a turn before the next step; False when it is not running."""
        with self._intake.changed:
            sequence = self._live.get(turn)
            if sequence is None or sequence.is_cancelled:
                return False
            sequence.is_cancelled = True
            self._intake.changed.notify()
        return True

    def drop(self, session: str) -> Future[Future[None]]:
        """Forget a session; one that is answering is forgotten when it has ended.

        What comes is done when no file of it is left.
        """

        def forget() -> Future[None]:
            self._answers.forget(session)
            return self._sessions.drop(session)

        with self._intake.changed:
            if self._stopping:
                raise EngineError(EngineCode.ENGINE_LOST, "The engine is stopping.")
            return self._intake.ask(forget)

    def prefetch(self, session: str) -> None:
        """Bring a session's KV near and make it the last to be evicted."""
        self._intake.call(lambda: self._sessions.prefetch(session))

    def probe(self) -> Future[bool]:
        """Ask the model for one token, between two steps."""
        return self._intake.ask(self._model.backend.answers)

    def stats(self) -> Stats:
        """Return counters and gauges; a snapshot that may be one step old."""
        gauges = {
            "turns_running": float(len(self._scheduler.running)),
            "turns_waiting": float(len(self._live) - len(self._scheduler.running)),
            "queue_seconds": self._scheduler.queue_seconds(time.monotonic()),
            **self._tally.gauges(),
            **self._answers.gauges(),
            **self._sessions.gauges(),
        }
        counted = Counter(dict(self._counters)) + Counter(dict(self._replies.counters))
        counters = {name: float(n) for name, n in counted.items()}
        counters |= self._sessions.counters() | self._answers.counters() | self._tally.counters()
        if self._sight is not None:
            gauges["feature_bytes"] = float(self._sight.kept_bytes)
            counters |= {name: float(n) for name, n in dict(self._sight.counters).items()}
        return Stats(gauges=gauges, counters=counters)

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        torch.set_num_threads(self._config.threads or torch.get_num_threads())
        while not self._stopping:
            self._way.taken()
            self._intake.take()
            self._end_cancelled()
            now = time.monotonic()
            late = self._end_late(now)
            reads = self._sessions.give_up_reads(self._scheduler.waiting, now)
            self._scheduler.admit(self._start, self._preempt)
            self._neighbour.hush(self._scheduler.is_understanding)
            is_still = self._scheduler.is_background and self._neighbour.is_reading()
            if not is_still and (step := self._scheduler.schedule(is_short=self._way.owes)):
                self._step(step)
            else:
                with self._intake.changed:
                    if is_still or not self._has_work():
                        soon = [wait for wait in (late, reads) if wait is not None]
                        soon += [READING_S] if is_still else []
                        self._intake.changed.wait(min(soon, default=None))
        self._intake.take()
        for sequence in list(self._scheduler):
            self._fail(sequence, EngineCode.ENGINE_LOST, "The engine was stopped.")

    def _has_work(self) -> bool:
        return bool(
            self._intake
            or self._stopping
            or self._scheduler.running
            or any(sequence.is_cancelled for sequence in self._live.values())
        )

    def _step(self, step: list[Slice]) -> None:
        began = time.monotonic()
        rank = rank_of(part.sequence.turn.kind for part in step)

        def is_unwanted() -> bool:
            return self._way.is_due(rank) or all(part.sequence.is_cancelled for part in step)

        segments = [
            Segment(s.sequence.context, s.tokens, s.samples, s.sequence.layout) for s in step
        ]
        try:
            logits = self._model.backend.run(segments, is_unwanted)
        except StepAbandoned:
            self._way.end(rank, was_given_up=True)
            self._counters["steps_abandoned"] += 1
            return
        # Whatever the model raises concerns the turns of this step, never the engine.
        except Exception:
            log.exception("a step of %d turns failed", len(step))
            for part in step:
                # What is written of their KV is unknown.
                part.sequence.context.release()
                self._fail(part.sequence, EngineCode.INTERNAL, "The model failed on this step.")
            return
        now = time.monotonic()
        self._way.end(rank, was_given_up=False)
        self._tally.note(step, now - began)
        sampled = [part.sequence for part in step if part.samples]
        for sequence, row in zip(sampled, logits, strict=True):
            self._settle_alone(sequence, row, now)

    def _settle_alone(self, sequence: Sequence, logits: torch.Tensor, now: float) -> None:
        """Settle one turn so that what fails in it, even its listener, stays with it."""
        try:
            self._settle(sequence, logits, now)
        except Exception:
            log.exception("a turn failed behind its step")
            if sequence.state is not State.ENDED:
                self._fail(sequence, EngineCode.INTERNAL, "The engine failed on this answer.")

    def _settle(self, sequence: Sequence, logits: torch.Tensor, now: float) -> None:
        """Choose the sequence's next token and show what can be shown."""
        sequence.state = State.DECODE
        sequence.first_token_at = sequence.first_token_at or now
        made = len(sequence.made)
        finish = take_token(sequence, logits, self._model.end_tokens, self.max_context)
        self._counters["tokens_generated"] += len(sequence.made) - made
        if finish is not None:
            self._finish(sequence, finish, now)
        elif now - sequence.shown_at >= self._config.delta_interval_s:
            sequence.shown_at = now
            self._replies.show(sequence)

    # -- the ends of a turn ---------------------------------------------------------------------

    def _finish(self, sequence: Sequence, finish: Finish, now: float) -> None:
        if sequence.prompt is not None:
            made = KnownAnswer(tuple(sequence.made), tuple(sequence.confidences), finish)
            self._answers.keep(sequence.turn, sequence.prompt, made)
        self._end(sequence, self._replies.done(sequence, finish, now))

    def _fail(self, sequence: Sequence, code: EngineCode, message: str) -> None:
        self._end(sequence, self._replies.failed(sequence, code, message))

    def _end_cancelled(self) -> None:
        for sequence in self._scheduler:
            if sequence.is_cancelled:
                self._end(sequence, self._replies.cancelled(sequence))

    def _end_late(self, now: float) -> float | None:
        """Fail turns that could not begin in time; return in how many seconds to look again."""
        for sequence in self._scheduler.late(now):
            self._fail(sequence, EngineCode.OVERLOADED, "The model is busy with other turns.")
        return self._scheduler.next_deadline_s(now)

    def _end(self, sequence: Sequence, last: TurnEvent) -> None:
        """Give back everything the turn held, then say its last word."""
        was_preempted = sequence.is_preempted
        sequence.state = State.ENDED
        self._scheduler.remove(sequence)
        if (session := sequence.session) is not None:
            session.remember(sequence.turn.id, sequence.made)
            if was_preempted:
                self._sessions.leave(session)
            else:
                self._sessions.settle(session)
        self._sessions.unwant(sequence)
        with self._intake.changed:
            del self._live[sequence.turn.id]
        sequence.emit(last)

    # -- between two steps ----------------------------------------------------------------------

    def _add(self, sequence: Sequence) -> None:
        """Let a turn wait, and what is kept of its session come near meanwhile."""
        turn = sequence.turn
        for other in self._scheduler:
            is_same = (other.turn.tenant, other.turn.session) == (turn.tenant, turn.session)
            if other.turn.kind == "background" and is_same:
                other.is_cancelled = True
        self._sessions.want(sequence, self._intake.wake)
        self._scheduler.add(sequence)

    def _start(self, sequence: Sequence) -> bool:
        """Let a turn begin; False to try again later. A fault in that ends this turn alone."""
        session = sequence.session
        try:
            session = session or self._sessions.open(sequence.turn)
            return self._reserve(sequence, session)
        except Exception:
            log.exception("a turn could not begin")
            if session is not None:
                # What was reserved or brought back of it is unknown.
                session.context.release()
                sequence.session = session
            if sequence.state is not State.ENDED:
                self._fail(sequence, EngineCode.INTERNAL, "The engine could not begin this answer.")
        return True

    def _reserve(self, sequence: Sequence, session: Session) -> bool:
        """Find what is known of the prompt and reserve its KV; False to try again later."""
        prompt = sequence.prompt or self._write(sequence, session)
        if prompt is None:
            return True
        sequence.prompt = prompt
        if sequence.answer is None and (known := self._answers.find(sequence.turn, prompt)):
            self._replay(sequence, session, prompt, known)
            return True
        wanted = min(len(prompt.tokens) + sequence.turn.max_new_tokens, self.max_context)
        if not self._sessions.could_ever_fit(wanted):
            self._fail(sequence, EngineCode.CONTEXT_FULL, "The prompt exceeds the KV memory.")
            return True
        if not self._sessions.reserve(session, wanted):
            return False
        self._begin(sequence, session, prompt)
        return True

    def _write(self, sequence: Sequence, session: Session) -> Prompt | None:
        """Make the prompt and lay it out; None when that failed and the turn has ended."""
        try:
            prompt = self._prompter.write(sequence, session)
            sequence.layout = self._prompter.layout(prompt)
            return prompt
        except PromptTooLong:
            self._fail(
                sequence,
                EngineCode.CONTEXT_FULL,
                f"The question and its lab values exceed the model's {self.max_context} tokens.",
            )
        # A template or tokenizer may refuse a text in its own way.
        except Exception:
            log.exception("a prompt could not be written")
            self._fail(sequence, EngineCode.INTERNAL, "The prompt could not be made.")
        return None

    def _begin(self, sequence: Sequence, session: Session, prompt: Prompt) -> None:
        spans = tuple(placed.span for placed in prompt.placed)
        known = self._sessions.begin(session, sequence.written, spans)
        self._sessions.unwant(sequence)
        sequence.session = session
        sequence.state = State.PREFILL
        if sequence.answer is not None:
            self._counters["tokens_resumed"] += known
            return
        sequence.cached_tokens = known
        sequence.started_at = time.monotonic()
        sequence.answer = self._answer_of(sequence, prompt)
        self._replies.start(sequence)

    def _replay(
        self, sequence: Sequence, session: Session, prompt: Prompt, known: KnownAnswer
    ) -> None:
        """Answer without the model; what the session has of the prompt's KV stays as it is."""
        now = time.monotonic()
        sequence.cached_tokens = len(prompt.tokens)
        sequence.started_at = sequence.first_token_at = now
        sequence.answer = self._answer_of(sequence, prompt)
        self._replies.start(sequence)
        sequence.made, sequence.confidences = list(known.tokens), list(known.confidences)
        for token in known.tokens:
            sequence.answer.push(token)
        session.remember(sequence.turn.id, sequence.made)
        self._finish(sequence, known.finish, now)

    def _answer_of(self, sequence: Sequence, prompt: Prompt) -> AnswerText:
        turn, characters = sequence.turn, self._model.detokenizer.characters()
        return AnswerText(turn.id, characters, turn.stop, prompt.seen)

    def _preempt(self, sequence: Sequence) -> bool:
        """Make a running turn wait, to go on later as if it had not; False when it cannot."""
        if sequence.preemptions >= MAX_PREEMPTIONS or not self._sessions.preempt(sequence):
            return False
        sequence.state = State.WAITING
        sequence.preemptions += 1
        self._counters["turns_preempted"] += 1
        return True
