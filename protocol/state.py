"""What a room is after an event: the nested types of a snapshot."""

from __future__ import annotations

from typing import Literal

from protocol.errors import ErrorCode
from protocol.shapes import (
    Actor,
    Annotation,
    Imaging,
    Keyframe,
    Level,
    ObservedRow,
    Part,
    Role,
    Span,
    SpanLink,
    Target,
)


class Person(Part, frozen=True, kw_only=True):
    """A participant who is here now, and where."""

    participant: str
    name: str
    department: str = ""
    role: Role = "member"
    asset: str | None = None
    x: float | None = None
    y: float | None = None
    typing: bool = False


class AssetState(Part, frozen=True, kw_only=True):
    """All that a room knows of an asset.

    A camera is `open` while it sends and `read` when it has ended; it is never committed. Of its
    `keyframes` the newest are kept, with their rows and the marks that were made of those.
    """

    asset: str
    name: str
    by: Actor
    kind: Literal["file", "camera", "microphone"] = "file"
    status: Literal["open", "committed", "read", "failed"] = "open"
    size: int | None = None
    sha256: str | None = None
    media_type: str = ""
    width: int = 0
    height: int = 0
    duration_s: float = 0.0
    levels: tuple[Level, ...] = ()
    rows: tuple[ObservedRow, ...] = ()
    code: ErrorCode | None = None
    message: str = ""
    frames: int = 1
    imaging: Imaging | None = None
    keyframes: tuple[Keyframe, ...] = ()


class AnnotationState(Part, frozen=True, kw_only=True):
    """A mark with who made it and when; deleted ones stay, so that they can be restored."""

    annotation: Annotation
    by: Actor
    seq: int
    changed_seq: int
    deleted: bool = False


class CommentState(Part, frozen=True, kw_only=True):
    """A comment."""

    id: str
    text: str
    by: Actor
    at: int
    seq: int
    target: Target | None = None


TurnStatus = Literal["running", "done", "cancelled", "failed"]


class TurnState(Part, frozen=True, kw_only=True):
    """A question and what was delivered of its answer."""

    turn: str
    question: str
    by: Actor
    at: int
    seq: int
    assets: tuple[str, ...] = ()
    status: TurnStatus = "running"
    text: str = ""
    spans: tuple[Span, ...] = ()
    links: tuple[SpanLink, ...] = ()
    model: str = ""
    sight: Literal["pixels", "text", "none"] | None = None
    missing: tuple[str, ...] = ()
    finish: str = ""
    code: ErrorCode | None = None
    message: str = ""
    timings: dict[str, float] = {}


class Snapshot(Part, frozen=True, kw_only=True):
    """A room's whole state after event `seq`."""

    seq: int
    epoch: str
    assets: tuple[AssetState, ...] = ()
    annotations: tuple[AnnotationState, ...] = ()
    comments: tuple[CommentState, ...] = ()
    turns: tuple[TurnState, ...] = ()
