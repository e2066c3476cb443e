"""Conversations by tenant and name, and where their KV lies: live, in RAM or on disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path

from engine.api import Turn
from engine.config import EngineConfig
from engine.kv.context import Budget, Context, MediaSpan, common_prefix, whole_spans
from engine.kv.keys import Identity
from engine.kv.store import Store
from engine.models.backend import Backend
from engine.sequence import Sequence, Session

# A disk that hangs costs a turn this long; then what it holds is computed again.
READ_DEADLINE_S = 2.0


class Sessions:
    """Only the loop's thread calls it, but for the numbers. Nothing is shared across tenants."""

    def __init__(self, config: EngineConfig, backend: Backend) -> None:
        self._max_sessions = config.max_sessions
        self._shape = backend.shape
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._reads_given_up = 0
        self._budget = Budget(config.kv_budget_bytes, self._demote)
        self._store = Store(
            Identity(backend.fingerprint, backend.shape),
            ram_bytes=config.kv_ram_bytes,
            # Without a name for the model nothing could be told from another one's.
            folder=Path(config.kv_folder)
            if config.kv_folder and config.keeps_on_disk and backend.fingerprint
            else None,
            disk_bytes=config.kv_disk_bytes,
            floor_bytes=config.kv_disk_floor_bytes,
        )

    def start(self) -> None:
        """Begin to read what an earlier engine left."""
        self._store.start()

    def stop(self) -> None:
        """Finish what waits to be written; no turn may run any more."""
        self._store.stop()

    # -- a turn's way ---------------------------------------------------------------------------

    def want(self, sequence: Sequence, done: Callable[[], None]) -> None:
        """Bring a waiting turn's session near; `done` is called from any thread."""
        key = key_of(sequence.turn)
        session = self._sessions.get(key)
        if session is not None and (session.is_busy or session.context.length):
            return
        sequence.is_wanting = True
        sequence.fetch = self._store.want(key)
        if sequence.fetch is not None:
            sequence.fetch.add_done_callback(lambda _: done())

    def give_up_reads(self, waiting: Iterable[Sequence], now: float) -> float | None:
        """Let turns begin without what the disk does not give; return when to look again."""
        reading = [s for s in waiting if s.fetch is not None and not s.fetch.done()]
        for sequence in reading:
            if now - sequence.submitted_at >= READ_DEADLINE_S:
                sequence.fetch = None
                self._reads_given_up += 1
        return READ_DEADLINE_S if reading else None

    def unwant(self, sequence: Sequence) -> None:
        """Say that a turn has begun or will not; saying it twice does nothing."""
        if sequence.is_wanting:
            sequence.is_wanting = False
            self._store.unwant(key_of(sequence.turn))

    def open(self, turn: Turn) -> Session:
        """Return a turn's session, new or with the answers that are known of it."""
        key = key_of(turn)
        session = self._sessions.get(key)
        if session is None:
            session = Session(key, Context(self._shape))
            self._sessions[key] = session
        if not session.answers and (memory := self._store.peek(key)) is not None:
            session.answers.update(memory.spoken())
        self._sessions.move_to_end(key)
        session.is_dropped = False
        idle = [name for name, kept in self._sessions.items() if not kept.is_busy]
        for name in idle[: max(len(self._sessions) - self._max_sessions, 0)]:
            self._budget.demote(name)
            del self._sessions[name]
        return session

    def could_ever_fit(self, tokens: int) -> bool:
        """Whether a context of so many tokens fits when nothing else is live."""
        return self._budget.could_ever_fit(tokens, self._shape)

    def reserve(self, session: Session, tokens: int) -> bool:
        """Make room for a session's next turn; False when busy ones hold it all."""
        return self._budget.reserve(session.key, session.context, tokens)

    def begin(self, session: Session, tokens: list[int], spans: tuple[MediaSpan, ...]) -> int:
        """Make a reserved context hold what is known of `tokens`; return how many of them."""
        context = session.context
        known = 0
        if not context.length and (memory := self._store.peek(session.key)) is not None:
            known = _known(memory.token_ids(), memory.media(), tokens, spans)
            self._store.restore(session.key, context, known)
        known = max(known, _known(context.tokens, context.spans, tokens, spans))
        context.crop(known)
        context.spans = spans
        if context.states is not None:
            context.states.mark_prompt(known, len(tokens))
        session.is_busy = True
        return context.length

    def settle(self, session: Session) -> None:
        """Let go of a session whose turn has ended, and keep what it added."""
        session.is_busy = False
        self._budget.settle(session.key)
        if session.is_dropped:
            self._forget(session)
        else:
            self._store.keep(session.key, session.context, session.answers)

    def preempt(self, sequence: Sequence) -> bool:
        """Take a running turn's memory away, its bits kept in RAM; False when they have no room."""
        session = sequence.session
        assert session is not None, "only what runs can be preempted"
        if not self._store.hold(session.key, session.context, session.answers):
            return False
        sequence.is_wanting = True
        self._budget.forget(session.key)
        return True

    def leave(self, session: Session) -> None:
        """Let go of a session whose turn ended while it was preempted."""
        session.is_busy = False
        if session.is_dropped:
            self._store.forget(session.key)
            self._forget(session)

    def note_computed(self, tokens: int, seconds: float) -> None:
        """Learn from a step of nothing but prompt what computing costs."""
        self._store.costs.note_computed(tokens, seconds)

    # -- asked for by name ----------------------------------------------------------------------

    def drop(self, name: str) -> Future[None]:
        """Forget all sessions of a name, busy ones at their end; done when no file is left."""
        for session in self._named(name):
            if session.is_busy:
                session.is_dropped = True
            else:
                self._forget(session)
        return self._store.wipe(name)

    def prefetch(self, name: str) -> None:
        """Make live sessions of a name the last to be evicted, and bring others to RAM."""
        live = [session.key for session in self._named(name) if session.context.length]
        for key in live:
            self._budget.touch(key)
        self._store.prefetch(name, frozenset(live))

    # -- numbers --------------------------------------------------------------------------------

    def gauges(self) -> dict[str, float]:
        """Return what is held now; may be asked from any thread."""
        return {
            "sessions": float(len(self._sessions)),
            "kv_bytes": float(self._budget.used_bytes),
            "kv_budget_bytes": float(self._budget.limit_bytes),
            **self._store.gauges(),
        }

    def counters(self) -> dict[str, float]:
        """Return what happened since the start; may be asked from any thread."""
        return {
            "kv_evictions": float(self._budget.evictions),
            "kv_reads_given_up": float(self._reads_given_up),
            **self._store.counters(),
        }

    def check_integrity(self) -> None:
        """Raise `AssertionError` unless, after `stop`, everything that is held has its owner."""
        assert not any(session.is_busy for session in self._sessions.values()), "busy for nobody"
        self._store.check_integrity()

    # -- below ----------------------------------------------------------------------------------

    def _named(self, name: str) -> list[Session]:
        return [session for key, session in self._sessions.items() if _name(key) == name]

    def _forget(self, session: Session) -> None:
        self._budget.forget(session.key)
        self._sessions.pop(session.key, None)

    def _demote(self, key: str, context: Context) -> None:
        self._store.demote(key, context, self._sessions[key].answers)


def key_of(turn: Turn) -> str:
    """Name a turn's session; the tenant is part of it, so nothing is ever shared across them."""
    return f"{turn.tenant}\0{turn.session}"


def _name(key: str) -> str:
    return key.partition("\0")[2]


def _known(
    tokens: list[int],
    media: tuple[MediaSpan, ...],
    wanted: list[int],
    spans: tuple[MediaSpan, ...],
) -> int:
    # The last token is always computed: its logits choose the next one.
    known = min(common_prefix(tokens, wanted), len(wanted) - 1)
    return whole_spans(known, media, spans)
