"""Every JSON message of `consilium.v1`, as a class with its facts.

A text frame carries one message or an array of them. Client messages refuse unknown fields, so
a typo is told; server messages accept them, so an old client lives on. `lane` says how a message
leaves the server: `control` first, `ordered` strictly by `seq`, `lossy` only while there is room,
the newest of each `coalesce_key` alone.

Words: an *op* is a lasting thing that someone does; an *event* is an op after it got its number.
An *ack* means that the log has it durably. Text of an answer is *delivered* when the event that
carries it has a number.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from protocol.base import MAX_TEXT_BYTES, ClientMessage, Lane, ServerMessage
from protocol.errors import ErrorCode
from protocol.events import AnyEvent
from protocol.shapes import Annotation, Coordinate, Id, Label, LongText, Part, Role, Shape, Target
from protocol.state import Person, Snapshot

StreamId = Annotated[int, Meta(ge=1, le=2**32 - 1)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]


# -- session, from the client --------------------------------------------------------------------


class Position(Part, frozen=True, kw_only=True):
    """How far a client has read a room: everything up to `seq` of `epoch`."""

    epoch: str
    seq: Annotated[int, Meta(ge=0)]


class Hello(ClientMessage, tag="hello", frozen=True, kw_only=True):
    """The first message of every connection.

    `session` is made once by the client (128 random bits or more) and kept over reconnects: the
    newer socket of a session replaces the older one. `name` and `department` count only where no
    token is asked for.
    """

    session: Annotated[str, Meta(min_length=16, max_length=64, pattern=r"^[A-Za-z0-9_-]+$(?!\n)")]
    client: Annotated[str, Meta(max_length=100)]
    token: Annotated[str, Meta(max_length=8_000)] | None = None
    name: Annotated[str, Meta(max_length=100)] = ""
    department: Annotated[str, Meta(max_length=100)] = ""
    resume: Position | None = None


class Refresh(ClientMessage, tag="refresh", frozen=True, kw_only=True):
    """A new token for the same participant and room, before the old one ends."""

    token: Annotated[str, Meta(max_length=8_000)]


class HeartbeatAck(ClientMessage, tag="heartbeat.ack", frozen=True, kw_only=True):
    """The answer to `heartbeat`; `t` is sent back as it came."""

    t: float


# -- uploads, from the client --------------------------------------------------------------------


class StreamOpen(ClientMessage, tag="stream.open", frozen=True, kw_only=True):
    """Start an upload, or go on with one: then `asset` names it and `stream` may be another.

    A `microphone` is written down while it comes; its `media_type` is "audio/webm;codecs=opus" or
    the like, or "audio/pcm;rate=48000;channels=1" for 16-bit little-endian samples at whatever
    rate they really have. With `asks` each utterance is also a question to the model.

    A `camera` sends "image/jpeg" stills, each in one frame or several of the same time with the
    last one flagged. The newest is looked at; `asset.camera` tells how many were passed over.
    """

    stream: StreamId
    kind: Literal["file", "camera", "microphone"] = "file"
    name: Annotated[str, Meta(max_length=255)] = ""
    media_type: Annotated[str, Meta(max_length=100)] = ""
    size: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    sha256: Sha256 | None = None
    asset: Id | None = None
    asks: bool = False


class StreamClose(ClientMessage, tag="stream.close", frozen=True, kw_only=True):
    """All bytes were sent: check, commit and look at them."""

    stream: StreamId


class StreamAbort(ClientMessage, tag="stream.abort", frozen=True, kw_only=True):
    """Give an upload up; its asset fails with `upload_abandoned`."""

    stream: StreamId


# -- ops, from the client ------------------------------------------------------------------------


class OpBody(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
):
    """Base of what an `op` does."""


class PutAnnotation(OpBody, tag="annotation.put", frozen=True, kw_only=True):
    """Make a mark. Its id must be new in the room."""

    annotation: Annotation


class PatchAnnotation(OpBody, tag="annotation.patch", frozen=True, kw_only=True):
    """Change single properties; those left out stay. The last writer of a property wins."""

    id: Id
    shape: Shape | UnsetType = UNSET
    label: Label | UnsetType = UNSET
    severity: Literal["note", "warning", "critical"] | UnsetType = UNSET


class DeleteAnnotation(OpBody, tag="annotation.delete", frozen=True, kw_only=True):
    """Take a mark away. A delete wins over edits that were under way."""

    id: Id


class RestoreAnnotation(OpBody, tag="annotation.restore", frozen=True, kw_only=True):
    """Bring a deleted mark back as it was when it was deleted."""

    id: Id


class AddComment(OpBody, tag="comment.add", frozen=True, kw_only=True):
    """Say something to the people in the room."""

    id: Id
    text: LongText
    target: Target | None = None


AnyOp = PutAnnotation | PatchAnnotation | DeleteAnnotation | RestoreAnnotation | AddComment


class Op(ClientMessage, tag="op", frozen=True, kw_only=True):
    """A lasting act. Answered by `ack` or `nack` with the same `op_id`; safe to send again."""

    op_id: Id
    op: AnyOp


class Ask(ClientMessage, tag="ask", frozen=True, kw_only=True):
    """A question to the model. Answered by `ack` or `nack` whose `op_id` is `turn`.

    `turn` is made by the client; sent again, it is the same question. `assets` narrows the
    question to these pictures; empty means all of the room. `interrupts` ends that turn first.
    With `json_schema` the answer is JSON of that schema. `temperature` 0 always takes the likeliest
    words; above, the same `seed` draws the same ones again.
    """

    turn: Id
    text: Annotated[str, Meta(min_length=1, max_length=16_000)]
    assets: Annotated[tuple[Id, ...], Meta(max_length=32)] = ()
    max_tokens: Annotated[int, Meta(ge=1, le=4096)] | None = None
    interrupts: Id | None = None
    json_schema: Annotated[str, Meta(max_length=16_000)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=5)] = 0.0
    seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0


class Cancel(ClientMessage, tag="cancel", frozen=True, kw_only=True):
    """End a running turn; an `error` with `turn_unknown` when it is not running."""

    turn: Id


class Presence(ClientMessage, tag="presence", frozen=True, kw_only=True):
    """Where this participant is now. Lossy: the newest wins, nothing is kept."""

    asset: Id | None = None
    x: Coordinate | None = None
    y: Coordinate | None = None
    typing: bool = False


AnyClientMessage = (
    Hello
    | Refresh
    | HeartbeatAck
    | StreamOpen
    | StreamClose
    | StreamAbort
    | Op
    | Ask
    | Cancel
    | Presence
)


# -- session, from the server --------------------------------------------------------------------


class Limits(Part, frozen=True, kw_only=True):
    """What this server takes, in bytes unless named otherwise."""

    max_text_bytes: int = MAX_TEXT_BYTES
    max_payload_bytes: int = 64 * 1024
    max_asset_bytes: int
    max_streams: int
    initial_credit_bytes: int


class MediaAccess(Part, frozen=True, kw_only=True):
    """How this participant fetches pictures until `expires_at` (Unix ms).

    `{base}/{asset}/levels/{level}?ticket={ticket}` and `{base}/{asset}/original?ticket=…`.
    """

    base: str
    ticket: str
    expires_at: int


class Welcome(ServerMessage, tag="welcome", frozen=True, kw_only=True):
    """The answer to `hello`, always the first message on a socket that may go on.

    With `snapshot` null the client's own state was good and every missed event follows;
    otherwise the snapshot replaces it, and everything after the snapshot follows.
    """

    participant: str
    name: str
    department: str = ""
    role: Role
    room: str
    epoch: str
    head: int
    limits: Limits
    heartbeat_s: float
    media: MediaAccess
    people: tuple[Person, ...] = ()
    snapshot: Snapshot | None = None
    model: str = ""
    durable: bool = True
    notices: tuple[str, ...] = ()


class Heartbeat(ServerMessage, tag="heartbeat", frozen=True, kw_only=True):
    """Each few seconds; `head` is the room's last `seq`, so a silent loss shows."""

    lane: ClassVar[Lane] = "control"

    head: int
    t: float
    engine_ready: bool = True


class Access(ServerMessage, tag="access", frozen=True, kw_only=True):
    """A fresh ticket for pictures, before the old one ends."""

    media: MediaAccess


class Goaway(ServerMessage, tag="goaway", frozen=True, kw_only=True):
    """The server will stop: come back after `retry_after` seconds."""

    retry_after: float


class Error(ServerMessage, tag="error", frozen=True, kw_only=True):
    """Something went wrong; `ref` names what (a stream, a turn, an op), if anything."""

    code: ErrorCode
    message: str
    ref: str | None = None
    fatal: bool = False
    retry_after: float | None = None


class Ack(ServerMessage, tag="ack", frozen=True, kw_only=True):
    """The log has the op durably, under `seq`. A repeated op gets its first number again."""

    op_id: str
    seq: int


class Nack(ServerMessage, tag="nack", frozen=True, kw_only=True):
    """The op was not taken and changed nothing."""

    op_id: str
    code: ErrorCode
    message: str
    retry_after: float | None = None


class StreamOpened(ServerMessage, tag="stream.opened", frozen=True, kw_only=True):
    """The upload may start at byte `offset`; `credit` bytes may be sent before more is granted."""

    stream: int
    asset: str
    offset: int
    credit: int


class StreamCredit(ServerMessage, tag="stream.credit", frozen=True, kw_only=True):
    """`credit` more bytes may be sent; the server holds all bytes before `received`."""

    stream: int
    credit: int
    received: int


class StreamClosed(ServerMessage, tag="stream.closed", frozen=True, kw_only=True):
    """The upload ended: committed when `code` is null. The socket lives in every case."""

    stream: int
    asset: str | None = None
    sha256: str | None = None
    code: ErrorCode | None = None
    message: str = ""


class PresenceState(ServerMessage, tag="presence", frozen=True, kw_only=True):
    """A participant came, or is somewhere else."""

    lane: ClassVar[Lane] = "lossy"

    person: Person

    def coalesce_key(self) -> str:
        """Keep the newest of each participant."""
        return f"presence:{self.person.participant}"


class PresenceGone(ServerMessage, tag="presence.gone", frozen=True, kw_only=True):
    """A participant left."""

    lane: ClassVar[Lane] = "lossy"

    participant: str

    def coalesce_key(self) -> str:
        """Replace where the participant was."""
        return f"presence:{self.participant}"


class AssetProgress(ServerMessage, tag="asset.progress", frozen=True, kw_only=True):
    """How far an upload or a look at it has come; `total` is 0 while unknown."""

    lane: ClassVar[Lane] = "lossy"

    asset: str
    stage: str
    done: int
    total: int

    def coalesce_key(self) -> str:
        """Keep the newest of each asset."""
        return f"progress:{self.asset}"


class CameraState(ServerMessage, tag="asset.camera", frozen=True, kw_only=True):
    """How a camera does: stills looked at, passed over for newer ones, and refused.

    `age_s` is how long the newest one had waited when it was looked at; `code` says why the last
    one was refused, null when it was not.
    """

    lane: ClassVar[Lane] = "lossy"

    asset: str
    taken: int
    dropped: int
    refused: int
    age_s: float
    code: ErrorCode | None = None

    def coalesce_key(self) -> str:
        """Keep the newest of each camera."""
        return f"camera:{self.asset}"


AnyServerMessage = (
    Welcome
    | Heartbeat
    | Access
    | Goaway
    | Error
    | Ack
    | Nack
    | StreamOpened
    | StreamCredit
    | StreamClosed
    | PresenceState
    | PresenceGone
    | AssetProgress
    | CameraState
    | AnyEvent
)
