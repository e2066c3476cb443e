"""Everything that has a number in a room: the events of its log, and nothing else."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from protocol.base import Lane, ServerMessage
from protocol.errors import ErrorCode
from protocol.shapes import (
    Actor,
    Annotation,
    Imaging,
    Keyframe,
    Level,
    ObservedRow,
    Shape,
    Span,
    SpanLink,
    Target,
)


class Event(ServerMessage, frozen=True, kw_only=True):
    """Base of everything that has a number. `at` is the server's clock in Unix ms.

    `seq` rises by one within an `epoch`; both are set by the log and by nothing else.
    """

    lane: ClassVar[Lane] = "ordered"

    seq: int = 0
    epoch: str = ""
    at: int
    actor: Actor
    op_id: str = ""


class AssetOpened(Event, tag="asset.opened", frozen=True, kw_only=True):
    """An upload began. `media_type` is what a microphone or camera sends."""

    asset: str
    name: str
    kind: Literal["file", "camera", "microphone"] = "file"
    size: int | None = None
    media_type: str = ""


class AssetCommitted(Event, tag="asset.committed", frozen=True, kw_only=True):
    """The bytes are complete, checked and stored; ops may target the asset now."""

    asset: str
    size: int
    sha256: str


class AssetDetected(Event, tag="asset.detected", frozen=True, kw_only=True):
    """What the asset really is; `mismatch` when the sender said otherwise.

    With `imaging` it is a medical image, whose levels show its first frame and whose `frames` can
    be fetched one by one.
    `duration_s` is that of a recording, whose `width` and `height` are 0, or of a video.
    """

    asset: str
    media_type: str
    width: int
    height: int
    orientation: int = 1
    mismatch: bool = False
    frames: int = 1
    imaging: Imaging | None = None
    duration_s: float = 0.0


class AssetLevel(Event, tag="asset.level", frozen=True, kw_only=True):
    """One more resolution can be fetched."""

    asset: str
    level: Level


class AssetKeyframe(Event, tag="asset.keyframe", frozen=True, kw_only=True):
    """One more still of a video or camera can be fetched, at `{base}/{asset}/frames/{frame}`."""

    asset: str
    keyframe: Keyframe


class AssetObserved(Event, tag="asset.observed", frozen=True, kw_only=True):
    """Rows that were read since the last of these."""

    asset: str
    rows: tuple[ObservedRow, ...]


class AssetRead(Event, tag="asset.read", frozen=True, kw_only=True):
    """Perception is done with the asset; of a camera, it has ended. Times in seconds."""

    asset: str
    timings: dict[str, float] = {}


class AssetFailed(Event, tag="asset.failed", frozen=True, kw_only=True):
    """The upload or the look at it failed; what was observed of the asset is withdrawn."""

    asset: str
    code: ErrorCode
    message: str


class AnnotationPut(Event, tag="annotation.put", frozen=True, kw_only=True):
    """A mark was made."""

    annotation: Annotation


class AnnotationPatched(Event, tag="annotation.patch", frozen=True, kw_only=True):
    """Properties of a mark changed."""

    id: str
    shape: Shape | UnsetType = UNSET
    label: str | UnsetType = UNSET
    severity: Literal["note", "warning", "critical"] | UnsetType = UNSET


class AnnotationDeleted(Event, tag="annotation.delete", frozen=True, kw_only=True):
    """A mark was taken away."""

    id: str


class AnnotationRestored(Event, tag="annotation.restore", frozen=True, kw_only=True):
    """A deleted mark is back."""

    id: str


class CommentAdded(Event, tag="comment.add", frozen=True, kw_only=True):
    """Somebody said something."""

    id: str
    text: str
    target: Target | None = None


class TurnStarted(Event, tag="turn.started", frozen=True, kw_only=True):
    """A question was taken; `actor` asked it."""

    turn: str
    question: str
    assets: tuple[str, ...] = ()


class TurnPrompted(Event, tag="turn.prompted", frozen=True, kw_only=True):
    """The model begins. `sight` says what it was given of the pictures.

    `missing` lists the assets that were not read in time and so are not part of the prompt.
    """

    turn: str
    model: str
    prompt_sha256: str
    prompt_tokens: int
    cached_tokens: int
    sight: Literal["pixels", "text", "none"]
    missing: tuple[str, ...] = ()


class TurnDelta(Event, tag="turn.delta", frozen=True, kw_only=True):
    """Text that the model adds to an answer, from `offset` on (in code points)."""

    turn: str
    offset: int
    text: str
    spans: tuple[Span, ...] = ()


class TurnAnnotation(Event, tag="turn.annotation", frozen=True, kw_only=True):
    """A part of the answer speaks of a place in a picture."""

    turn: str
    link: SpanLink


class TurnDone(Event, tag="turn.done", frozen=True, kw_only=True):
    """The answer is complete. `text_sha256` is of the whole text in UTF-8; times in seconds.

    `confidence` is the geometric mean of the probabilities that the model gave to its tokens: how
    sure it was of its words, not whether they are right.
    """

    turn: str
    finish: Literal["stop", "length"]
    text_sha256: str
    prompt_tokens: int
    answer_tokens: int
    cached_tokens: int
    timings: dict[str, float] = {}
    confidence: float | None = None


class TurnCancelled(Event, tag="turn.cancelled", frozen=True, kw_only=True):
    """A person ended the answer; what was delivered stays and is what the model remembers."""

    turn: str
    reason: Literal["person", "barge_in"] = "person"


class TurnFailed(Event, tag="turn.failed", frozen=True, kw_only=True):
    """The answer ended by a fault; what was delivered stays."""

    turn: str
    code: ErrorCode
    message: str


class UnknownEvent(Event, frozen=True, kw_only=True, tag="unknown"):
    """Stands for a numbered event that this version cannot read; never sent. It changes nothing."""


AnyEvent = (
    AssetOpened
    | AssetCommitted
    | AssetDetected
    | AssetLevel
    | AssetKeyframe
    | AssetObserved
    | AssetRead
    | AssetFailed
    | AnnotationPut
    | AnnotationPatched
    | AnnotationDeleted
    | AnnotationRestored
    | CommentAdded
    | TurnStarted
    | TurnPrompted
    | TurnDelta
    | TurnAnnotation
    | TurnDone
    | TurnCancelled
    | TurnFailed
)
