"""The reducer that folds events into a room's state: pure, the same for server and clients.

Merging: the last writer of a property wins in server order; a delete wins over later edits,
which are refused with `annotation_deleted` so that the client can offer them as new; an event
whose `seq` was folded already changes nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any, assert_never, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from protocol import events as ev
from protocol.errors import ErrorCode, OpRefused
from protocol.messages import (
    AddComment,
    AnyOp,
    DeleteAnnotation,
    PatchAnnotation,
    PutAnnotation,
    RestoreAnnotation,
)
from protocol.shapes import Actor, Keyframe, Level, ObservedRow, Span, SpanLink, SpeechRow, Target
from protocol.state import AnnotationState, AssetState, CommentState, Snapshot, TurnState

MAX_ANNOTATIONS = 10_000
MAX_COMMENTS = 10_000
# Of a video there are never more; of a camera the newest are kept.
MAX_KEYFRAMES = 600

_EVENT_TYPES: tuple[type[ev.Event], ...] = get_args(ev.AnyEvent)
_canonical = msgspec.json.Encoder(order="deterministic")


class EventGap(Exception):
    """An event does not follow the state: events are missing, or the epoch is another."""


class RoomState:
    """Everything lasting in a room after event `seq` of `epoch`."""

    def __init__(self, epoch: str = "", seq: int = 0) -> None:
        self.epoch = epoch
        self.seq = seq
        self.assets: dict[str, AssetState] = {}
        self.annotations: dict[str, AnnotationState] = {}
        self.comments: dict[str, CommentState] = {}
        self.turns: dict[str, TurnState] = {}

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> RoomState:
        """Build the state that a snapshot describes."""
        state = cls(snapshot.epoch, snapshot.seq)
        state.assets = {asset.asset: asset for asset in snapshot.assets}
        state.annotations = {mark.annotation.id: mark for mark in snapshot.annotations}
        state.comments = {comment.id: comment for comment in snapshot.comments}
        state.turns = {turn.turn: turn for turn in snapshot.turns}
        return state

    def snapshot(self) -> Snapshot:
        """Describe the state whole, in the order in which things were made."""
        return Snapshot(
            seq=self.seq,
            epoch=self.epoch,
            assets=tuple(self.assets.values()),
            annotations=tuple(self.annotations.values()),
            comments=tuple(self.comments.values()),
            turns=tuple(self.turns.values()),
        )

    def hash(self) -> str:
        """SHA-256 of the snapshot's canonical JSON: equal states have equal hashes."""
        return hashlib.sha256(_canonical.encode(self.snapshot())).hexdigest()

    def running_turns(self) -> list[TurnState]:
        """The turns without an end, oldest first."""
        return [turn for turn in self.turns.values() if turn.status == "running"]


def apply(state: RoomState, event: ev.Event) -> bool:
    """Fold a numbered event into the state; False when it was folded before.

    Raises `EventGap` when the event is not the next one: the state is then as before, and its
    owner has to read what is missing.
    """
    if event.epoch != state.epoch and state.epoch:
        raise EventGap(f"epoch {event.epoch!r} is not {state.epoch!r}")
    if event.seq <= state.seq:
        return False
    if event.seq != state.seq + 1:
        raise EventGap(f"event {event.seq} does not follow {state.seq}")
    fold(state, event)
    state.epoch, state.seq = event.epoch, event.seq
    return True


def fold(state: RoomState, event: Any) -> None:
    """Change the state by what the event says, whatever its number."""
    match event:
        case ev.AssetOpened() | ev.AssetCommitted() | ev.AssetDetected() | ev.AssetLevel():
            _fold_asset(state, event)
        case ev.AssetKeyframe() | ev.AssetObserved() | ev.AssetRead() | ev.AssetFailed():
            _fold_asset(state, event)
        case ev.AnnotationPut() | ev.AnnotationPatched():
            _fold_annotation(state, event)
        case ev.AnnotationDeleted() | ev.AnnotationRestored():
            _fold_annotation(state, event)
        case ev.CommentAdded():
            state.comments[event.id] = CommentState(
                id=event.id,
                text=event.text,
                by=event.actor,
                at=event.at,
                seq=event.seq,
                target=event.target,
            )
        case ev.UnknownEvent():
            pass  # its number counts, its meaning is for newer versions
        case _ if isinstance(event, _EVENT_TYPES):
            _fold_turn(state, event)
        case _:
            raise TypeError(f"{type(event).__name__} is no event")


def _fold_asset(state: RoomState, event: Any) -> None:
    if isinstance(event, ev.AssetOpened):
        state.assets[event.asset] = AssetState(
            asset=event.asset,
            name=event.name,
            by=event.actor,
            kind=event.kind,
            size=event.size,
            media_type=event.media_type,
        )
        return
    asset = state.assets.get(event.asset)
    if asset is None or asset.status == "failed":
        return
    match event:
        case ev.AssetCommitted():
            asset = replace(asset, status="committed", size=event.size, sha256=event.sha256)
        case ev.AssetDetected():
            asset = replace(
                asset,
                media_type=event.media_type,
                width=event.width,
                height=event.height,
                frames=event.frames,
                imaging=event.imaging,
                duration_s=event.duration_s,
            )
        case ev.AssetLevel():
            asset = replace(asset, levels=_with_level(asset.levels, event.level))
        case ev.AssetKeyframe():
            asset = _with_keyframe(state, asset, event.keyframe)
        case ev.AssetObserved():
            asset = replace(asset, rows=_with_rows(asset.rows, event.rows))
        case ev.AssetRead():
            asset = replace(asset, status="read")
        case ev.AssetFailed():
            asset = replace(
                asset,
                status="failed",
                code=event.code,
                message=event.message,
                rows=(),
                levels=(),
                keyframes=(),
            )
            _withdraw_marks(state, event)
        case _:
            assert_never(event)
    state.assets[event.asset] = asset


def _with_level(levels: tuple[Level, ...], level: Level) -> tuple[Level, ...]:
    kept = tuple(known for known in levels if known.level != level.level)
    return (*kept, level)


def _with_rows(
    rows: tuple[ObservedRow, ...], more: tuple[ObservedRow, ...]
) -> tuple[ObservedRow, ...]:
    # A look that was repeated after a crash names its rows as the first one did.
    known = {row.id: row for row in rows}
    known.update((row.id, row) for row in more)
    return tuple(known.values())


def _with_keyframe(state: RoomState, asset: AssetState, keyframe: Keyframe) -> AssetState:
    """Add a keyframe; what was read on those that leave goes with them."""
    known = tuple(each for each in asset.keyframes if each.frame != keyframe.frame)
    if len(known) < MAX_KEYFRAMES:
        return replace(asset, keyframes=(*known, keyframe))
    kept = (*known[1 - MAX_KEYFRAMES :], keyframe)
    # A still that is shown unchanged keeps the rows of the one that it is like.
    needed = {each.frame if each.like is None else each.like for each in kept}
    rows = tuple(row for row in asset.rows if isinstance(row, SpeechRow) or row.frame in needed)
    for mark_id, mark in list(state.annotations.items()):
        target = mark.annotation.target
        is_old = target.asset == asset.asset and target.frame not in needed
        if is_old and mark.by.kind == "model":
            del state.annotations[mark_id]
    return replace(asset, keyframes=kept, rows=rows)


def _withdraw_marks(state: RoomState, event: ev.AssetFailed) -> None:
    for mark_id, mark in state.annotations.items():
        if mark.annotation.target.asset == event.asset and mark.by.kind == "model":
            state.annotations[mark_id] = replace(mark, deleted=True, changed_seq=event.seq)


def _fold_annotation(state: RoomState, event: Any) -> None:
    if isinstance(event, ev.AnnotationPut):
        mark = event.annotation
        state.annotations[mark.id] = AnnotationState(
            annotation=mark, by=event.actor, seq=event.seq, changed_seq=event.seq
        )
        return
    known = state.annotations.get(event.id)
    if known is None:
        return
    match event:
        case ev.AnnotationPatched():
            if known.deleted:
                return
            changes = {
                name: value
                for name in ("shape", "label", "severity")
                if (value := getattr(event, name)) is not UNSET
            }
            known = replace(known, annotation=replace(known.annotation, **changes))
        case ev.AnnotationDeleted():
            known = replace(known, deleted=True)
        case ev.AnnotationRestored():
            known = replace(known, deleted=False)
        case _:
            assert_never(event)
    state.annotations[event.id] = replace(known, changed_seq=event.seq)


def _fold_turn(state: RoomState, event: Any) -> None:
    if isinstance(event, ev.TurnStarted):
        state.turns[event.turn] = TurnState(
            turn=event.turn,
            question=event.question,
            by=event.actor,
            at=event.at,
            seq=event.seq,
            assets=event.assets,
        )
        return
    turn = state.turns.get(event.turn)
    if turn is None or turn.status != "running":
        return
    match event:
        case ev.TurnPrompted():
            turn = replace(turn, model=event.model, sight=event.sight, missing=event.missing)
        case ev.TurnDelta():
            turn = replace(turn, text=turn.text + event.text, spans=_joined(turn.spans, event))
        case ev.TurnAnnotation():
            turn = replace(turn, links=_linked(turn.links, event.link))
        case ev.TurnDone():
            turn = replace(turn, status="done", finish=event.finish, timings=event.timings)
        case ev.TurnCancelled():
            turn = replace(turn, status="cancelled", finish=event.reason)
        case ev.TurnFailed():
            turn = replace(turn, status="failed", code=event.code, message=event.message)
        case _:
            assert_never(event)
    state.turns[event.turn] = turn


def _joined(spans: tuple[Span, ...], event: ev.TurnDelta) -> tuple[Span, ...]:
    return (*spans, *event.spans) if event.spans else spans


def _linked(links: tuple[SpanLink, ...], link: SpanLink) -> tuple[SpanLink, ...]:
    return (*links, link)


def draft_event(state: RoomState, op: AnyOp, actor: Actor, at: int, op_id: str) -> ev.Event:
    """Turn an op into the event it would be, without its number.

    Raises `OpRefused` when the room in this state does not take it.
    """
    match op:
        case PutAnnotation(annotation=mark):
            _require_asset(state, mark.target)
            if mark.id in state.annotations:
                raise OpRefused(f"annotation {mark.id} exists", code=ErrorCode.OP_CONFLICT)
            if len(state.annotations) >= MAX_ANNOTATIONS:
                raise OpRefused("the room has no place for more marks", code=ErrorCode.ROOM_FULL)
            return ev.AnnotationPut(at=at, actor=actor, op_id=op_id, annotation=mark)
        case PatchAnnotation():
            if _require_mark(state, op.id).deleted:
                raise OpRefused("the mark was deleted", code=ErrorCode.ANNOTATION_DELETED)
            return ev.AnnotationPatched(
                at=at,
                actor=actor,
                op_id=op_id,
                id=op.id,
                shape=op.shape,
                label=op.label,
                severity=op.severity,
            )
        case DeleteAnnotation():
            _require_mark(state, op.id)
            return ev.AnnotationDeleted(at=at, actor=actor, op_id=op_id, id=op.id)
        case RestoreAnnotation():
            _require_mark(state, op.id)
            return ev.AnnotationRestored(at=at, actor=actor, op_id=op_id, id=op.id)
        case AddComment():
            if op.id in state.comments:
                raise OpRefused(f"comment {op.id} exists", code=ErrorCode.OP_CONFLICT)
            if len(state.comments) >= MAX_COMMENTS:
                raise OpRefused("the room has no place for more comments", code=ErrorCode.ROOM_FULL)
            if op.target is not None:
                _require_asset(state, op.target)
            return ev.CommentAdded(
                at=at, actor=actor, op_id=op_id, id=op.id, text=op.text, target=op.target
            )
        case _:
            assert_never(op)


def _require_asset(state: RoomState, target: Target) -> None:
    asset = state.assets.get(target.asset)
    if asset is None:
        raise OpRefused(f"asset {target.asset} is not in this room", code=ErrorCode.ASSET_UNKNOWN)
    if asset.status not in ("committed", "read") and not asset.keyframes:
        raise OpRefused("the asset is not committed", code=ErrorCode.ASSET_NOT_READY)


def _require_mark(state: RoomState, mark_id: str) -> AnnotationState:
    mark = state.annotations.get(mark_id)
    if mark is None:
        raise OpRefused(f"no annotation {mark_id}", code=ErrorCode.ANNOTATION_UNKNOWN)
    return mark
