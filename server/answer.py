"""One answer of the model, from the engine's events to the room's: one terminal, whatever comes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator

import structlog

from engine import api
from protocol.errors import ErrorCode
from protocol.events import (
    Event,
    TurnAnnotation,
    TurnDelta,
    TurnDone,
    TurnFailed,
    TurnPrompted,
)
from protocol.room import RoomState
from server import translate
from server.log import LogUnavailable
from server.room import Room
from server.turn_records import TurnRecord, TurnRecords

log = structlog.get_logger(__name__)


class Answer:
    """Writes one answer into a room as the engine makes it.

    `write` returns whether the answer ended; what was recorded until then is what was delivered.
    """

    def __init__(
        self,
        room: Room,
        records: TurnRecords,
        turn: str,
        missing: tuple[str, ...],
        now_ms: Callable[[], int],
    ) -> None:
        self._room = room
        self._records = records
        self._turn = turn
        self._missing = missing
        self._now_ms = now_ms
        self._text: list[str] = []
        self._record: TurnRecord | None = None

    async def write(self, group: Iterable[api.TurnEvent]) -> bool:
        """Record a group of the engine's events in their order, in one append."""
        events: list[Event] = []
        last: api.TurnEvent | None = None
        for last in merged(group):
            if isinstance(last, api.TurnDelta):
                self._text.append(last.text)
            events += await self._translate(last)
        await self._room.record(*events, holds=self._is_running)
        if isinstance(last, api.TurnDone | api.TurnFailed):
            await self._keep(last)
            return True
        return False

    def _is_running(self, state: RoomState) -> bool:
        return state.turns[self._turn].status == "running"

    async def _translate(self, event: api.TurnEvent) -> list[Event]:
        at, actor, turn = self._now_ms(), translate.MODEL, self._turn
        match event:
            case api.TurnStarted():
                digest = hashlib.sha256(event.prompt.encode()).hexdigest()
                self._record = TurnRecord(
                    turn=turn, model=event.model, prompt=event.prompt, prompt_sha256=digest
                )
                await self._store(self._record)
                return [self._prompted(event, digest)]
            case api.TurnDelta(offset=offset, text=text):
                spans = translate.spans(event.spans)
                return [
                    TurnDelta(at=at, actor=actor, turn=turn, offset=offset, text=text, spans=spans)
                ]
            case api.TurnAnnotation():
                link = translate.link(event)
                return [TurnAnnotation(at=at, actor=actor, turn=turn, link=link)]
            case api.TurnDone():
                return [self._done(event)]
            case api.TurnFailed(code=code, message=message):
                return [failure(turn, at, translate.code(code), message)]
            case api.TurnCancelled():
                # Nobody here asked for it, or the asker has recorded the end already.
                return []

    def _prompted(self, started: api.TurnStarted, digest: str) -> TurnPrompted:
        return TurnPrompted(
            at=self._now_ms(),
            actor=translate.MODEL,
            turn=self._turn,
            model=started.model,
            prompt_sha256=digest,
            prompt_tokens=started.prompt_tokens,
            cached_tokens=started.cached_tokens,
            sight=started.sight,
            missing=self._missing,
        )

    def _done(self, done: api.TurnDone) -> TurnDone:
        return TurnDone(
            at=self._now_ms(),
            actor=translate.MODEL,
            op_id=f"end:{self._turn}",
            turn=self._turn,
            finish=done.finish,
            text_sha256=hashlib.sha256("".join(self._text).encode()).hexdigest(),
            prompt_tokens=done.prompt_tokens,
            answer_tokens=len(done.token_ids),
            cached_tokens=done.cached_tokens,
            timings=done.timings,
            confidence=_geometric_mean(done.confidences),
        )

    async def _keep(self, event: api.TurnDone | api.TurnFailed) -> None:
        if self._record is not None:
            made = event.token_ids if isinstance(event, api.TurnDone) else ()
            finish = event.finish if isinstance(event, api.TurnDone) else "failed"
            await self._store(_finished(self._record, "".join(self._text), made, finish))

    async def _store(self, record: TurnRecord) -> None:
        try:
            await self._records.keep(self._room.name, record)
        except LogUnavailable:
            log.warning("turn record not kept", room=self._room.name, turn=self._turn)


def _geometric_mean(values: tuple[float, ...]) -> float | None:
    # A probability may be too small for its float; of 0 there is no logarithm.
    logs = [math.log(max(value, 1e-30)) for value in values]
    return round(math.exp(sum(logs) / len(logs)), 4) if logs else None


def _finished(record: TurnRecord, text: str, token_ids: tuple[int, ...], finish: str) -> TurnRecord:
    return TurnRecord(
        turn=record.turn,
        model=record.model,
        prompt=record.prompt,
        prompt_sha256=record.prompt_sha256,
        text=text,
        token_ids=token_ids,
        finish=finish,
    )


def failure(turn: str, at: int, code: ErrorCode, message: str) -> TurnFailed:
    """Build the event that ends a turn by a fault; every end of a turn is one act."""
    return TurnFailed(
        at=at,
        actor=translate.SERVER,
        op_id=f"end:{turn}",
        turn=turn,
        code=code,
        message=message,
    )


def merged(group: Iterable[api.TurnEvent]) -> Iterator[api.TurnEvent]:
    """Join deltas that follow each other into one."""
    waiting: list[api.TurnDelta] = []
    for event in group:
        if isinstance(event, api.TurnDelta):
            waiting.append(event)
            continue
        if waiting:
            yield _joined(waiting)
            waiting = []
        yield event
    if waiting:
        yield _joined(waiting)


def _joined(deltas: list[api.TurnDelta]) -> api.TurnDelta:
    first = deltas[0]
    return api.TurnDelta(
        turn=first.turn,
        offset=first.offset,
        text="".join(delta.text for delta in deltas),
        spans=tuple(span for delta in deltas for span in delta.spans),
    )
