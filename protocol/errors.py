"""Every error and close code of `consilium.v1`, and what each asks of the other side.

    ProtocolError
    ├── BadMessage, TooBig, UnknownType, WrongKind     the message, the socket lives
    ├── StreamError                                    one upload, the socket lives
    └── Unauthenticated, Forbidden                     the socket closes

The range of a close code tells even a client that does not know it what to do: 4400-4449 "do
not come back as you are", 4450-4499 "come back with back-off".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import ClassVar


class ErrorCode(StrEnum):
    """The closed list of reasons that may stand in `error`, `nack` and failure events."""

    # the message
    BAD_JSON = "bad_json"
    BAD_MESSAGE = "bad_message"
    UNKNOWN_TYPE = "unknown_type"
    TOO_BIG = "too_big"
    TOO_DEEP = "too_deep"
    NOT_STORABLE = "not_storable"
    BAD_FRAME = "bad_frame"
    OUT_OF_TURN = "out_of_turn"
    # who and how often
    UNAUTHENTICATED = "unauthenticated"
    TOKEN_EXPIRED = "token_expired"
    FORBIDDEN = "forbidden"
    REPLACED = "replaced"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    DRAINING = "draining"
    TOO_SLOW = "too_slow"
    HELLO_TIMEOUT = "hello_timeout"
    # ops
    ASSET_UNKNOWN = "asset_unknown"
    ASSET_NOT_READY = "asset_not_ready"
    ANNOTATION_UNKNOWN = "annotation_unknown"
    ANNOTATION_DELETED = "annotation_deleted"
    OP_CONFLICT = "op_conflict"
    ROOM_FULL = "room_full"
    UNAVAILABLE = "unavailable"
    # upload streams
    STREAM_UNKNOWN = "stream_unknown"
    STREAM_EXISTS = "stream_exists"
    STREAM_OVERDRAWN = "stream_overdrawn"
    STREAM_LIMIT = "stream_limit"
    STREAM_GAP = "stream_gap"
    SIZE_MISMATCH = "size_mismatch"
    HASH_MISMATCH = "hash_mismatch"
    UPLOAD_ABANDONED = "upload_abandoned"
    # media
    MEDIA_UNSUPPORTED = "media_unsupported"
    MEDIA_EMPTY = "media_empty"
    MEDIA_TRUNCATED = "media_truncated"
    MEDIA_CORRUPT = "media_corrupt"
    MEDIA_TOO_MANY_PIXELS = "media_too_many_pixels"
    MEDIA_TOO_BIG = "media_too_big"
    MEDIA_TOO_DENSE = "media_too_dense"
    MEDIA_TIMEOUT = "media_timeout"
    DECODER_LOST = "decoder_lost"
    # turns
    TURN_UNKNOWN = "turn_unknown"
    TURN_EXISTS = "turn_exists"
    TURN_INTERRUPTED = "turn_interrupted"
    CONTEXT_FULL = "context_full"
    SCHEMA_UNSUPPORTED = "schema_unsupported"
    LANGUAGE_UNSUPPORTED = "language_unsupported"
    ENGINE_LOST = "engine_lost"
    # exports
    EXPORT_FORMAT = "export_format"
    EXPORT_IMPOSSIBLE = "export_impossible"
    INTERNAL = "internal"


class CloseCode(IntEnum):
    """Codes of a WebSocket close that the server starts."""

    NORMAL = 1000
    MESSAGE_TOO_BIG = 1009
    BAD_MESSAGE = 4400
    UNAUTHENTICATED = 4401
    FORBIDDEN = 4403
    REPLACED = 4409
    TOO_BIG = 4413
    UNAVAILABLE = 4450
    DRAINING = 4453
    TOO_SLOW = 4458
    RATE = 4459


def may_reconnect(close_code: int) -> bool:
    """Whether a client whose socket closed with this code should come back (with back-off).

    Every code outside 4400-4449 says yes, 1000 and the unknown included only when it was not
    the client itself that closed; an abnormal end (1006) is a network fault and says yes.
    """
    return not 4400 <= close_code <= 4449 and close_code != CloseCode.NORMAL


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one code says: when it is sent, whether the socket closes, whether to try again."""

    when: str
    fatal: bool = False
    retry: bool = False


E = ErrorCode
MEANINGS: dict[ErrorCode, Meaning] = {
    E.BAD_JSON: Meaning("A text frame is not JSON."),
    E.BAD_MESSAGE: Meaning("JSON that does not fit the schema of its type."),
    E.UNKNOWN_TYPE: Meaning("The message's `type` is not one that a client sends."),
    E.TOO_BIG: Meaning("A text message over 256 KiB; nothing of it was taken."),
    E.TOO_DEEP: Meaning("JSON nested deeper than 64 levels."),
    E.NOT_STORABLE: Meaning(
        "A value that cannot be kept: a lone surrogate, or an integer over 64 bits."
    ),
    E.BAD_FRAME: Meaning("A binary frame whose header is wrong or whose length lies."),
    E.OUT_OF_TURN: Meaning("Not `hello` first, or `hello` again.", fatal=True),
    E.UNAUTHENTICATED: Meaning("The token is missing or not valid.", fatal=True),
    E.TOKEN_EXPIRED: Meaning("The token is past its end; come with a new one.", fatal=True),
    E.FORBIDDEN: Meaning("The token is for another room, or the role may not do this."),
    E.REPLACED: Meaning("A newer socket of the same session took over.", fatal=True),
    E.RATE_LIMITED: Meaning("Too many messages; `retry_after` says when to go on.", retry=True),
    E.OVERLOADED: Meaning("The engine's or the server's queue is full.", retry=True),
    E.DRAINING: Meaning("The server is about to stop.", fatal=True, retry=True),
    E.TOO_SLOW: Meaning("The client took nothing for the send deadline.", fatal=True, retry=True),
    E.HELLO_TIMEOUT: Meaning("No `hello` within 10 s.", fatal=True, retry=True),
    E.ASSET_UNKNOWN: Meaning("The op names an asset that is not in this room."),
    E.ASSET_NOT_READY: Meaning("The asset, or this part of it, is not there yet.", retry=True),
    E.ANNOTATION_UNKNOWN: Meaning("The op names an annotation that never was in this room."),
    E.ANNOTATION_DELETED: Meaning("The annotation was deleted; the edit may be offered as new."),
    E.OP_CONFLICT: Meaning("The id is taken by another object or by a different op."),
    E.ROOM_FULL: Meaning("The room's limit of objects or of participants is reached."),
    E.UNAVAILABLE: Meaning("The log cannot be written now; nothing was taken.", retry=True),
    E.STREAM_UNKNOWN: Meaning("A chunk or `stream.close` for a stream that is not open."),
    E.STREAM_EXISTS: Meaning("The stream id is open already."),
    E.STREAM_OVERDRAWN: Meaning("More bytes than the credit allowed; the stream is closed."),
    E.STREAM_LIMIT: Meaning("Too many streams open on this connection.", retry=True),
    E.STREAM_GAP: Meaning("A chunk's sequence number is not the next; the stream is closed."),
    E.SIZE_MISMATCH: Meaning("The bytes are more or fewer than `size` said."),
    E.HASH_MISMATCH: Meaning("The bytes do not have the SHA-256 that was claimed."),
    E.UPLOAD_ABANDONED: Meaning("The upload was given up, or not resumed in time."),
    E.MEDIA_UNSUPPORTED: Meaning("The content is of a type that is not read here."),
    E.MEDIA_EMPTY: Meaning("The file has no bytes."),
    E.MEDIA_TRUNCATED: Meaning("The file ends before its picture does."),
    E.MEDIA_CORRUPT: Meaning("The file is damaged."),
    E.MEDIA_TOO_MANY_PIXELS: Meaning("More pixels than the limit; found before decoding."),
    E.MEDIA_TOO_BIG: Meaning("More bytes than the limit."),
    E.MEDIA_TOO_DENSE: Meaning("Too few bytes for so many pixels; found before decoding."),
    E.MEDIA_TIMEOUT: Meaning("Decoding took longer than the limit."),
    E.DECODER_LOST: Meaning("The decoder's process ended while it worked on this.", retry=True),
    E.TURN_UNKNOWN: Meaning("`cancel` or `interrupts` for a turn that is not running."),
    E.TURN_EXISTS: Meaning("The turn id was used before with another question."),
    E.TURN_INTERRUPTED: Meaning("The server stopped while the turn ran.", retry=True),
    E.CONTEXT_FULL: Meaning("The question does not fit the model's context."),
    E.SCHEMA_UNSUPPORTED: Meaning("The `json_schema` is none, or one that cannot be kept to."),
    E.LANGUAGE_UNSUPPORTED: Meaning("The loaded model does not know this language."),
    E.ENGINE_LOST: Meaning("The engine's process ended while it worked on this.", retry=True),
    E.EXPORT_FORMAT: Meaning("The export's `format` is not one of those that are listed."),
    E.EXPORT_IMPOSSIBLE: Meaning("The room cannot be written in this format; it says why."),
    E.INTERNAL: Meaning("A fault of ours; the server's log has it by the connection's id."),
}

CLOSE_MEANINGS: dict[CloseCode, str] = {
    CloseCode.NORMAL: "The client said it leaves.",
    CloseCode.MESSAGE_TOO_BIG: "A frame over 8 MiB; closed by the transport.",
    CloseCode.BAD_MESSAGE: "Not a client of this protocol: the first message was no `hello`.",
    CloseCode.UNAUTHENTICATED: "The token is missing, not valid or expired.",
    CloseCode.FORBIDDEN: "The token is for another room, or the origin is not allowed.",
    CloseCode.REPLACED: "A newer socket of the same session took over.",
    CloseCode.TOO_BIG: "The client goes on sending what is too big.",
    CloseCode.UNAVAILABLE: "The server cannot serve this room now.",
    CloseCode.DRAINING: "The server stops; come back after `retry_after`.",
    CloseCode.TOO_SLOW: "The client took nothing for the send deadline.",
    CloseCode.RATE: "The client goes on beyond its rate.",
}


class ProtocolError(Exception):
    """The peer's mistake, as a value that can be sent: `code`, a sentence, what it refers to."""

    code: ErrorCode = ErrorCode.INTERNAL
    close_code: ClassVar[CloseCode | None] = None

    def __init__(
        self, message: str, *, code: ErrorCode | None = None, ref: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.ref = ref
        if code is not None:
            self.code = code

    @property
    def fatal(self) -> bool:
        """Whether the socket closes after it."""
        return self.close_code is not None


class BadMessage(ProtocolError):
    """A frame or message that cannot be taken; the socket lives."""

    code = ErrorCode.BAD_MESSAGE


class OpRefused(ProtocolError):
    """An op that the room does not take; answered as `nack`."""

    code = ErrorCode.OP_CONFLICT


class StreamError(ProtocolError):
    """One upload stream ends; the socket and the other streams live."""

    code = ErrorCode.STREAM_UNKNOWN


class OutOfTurn(ProtocolError):
    """Not `hello` first, or `hello` again."""

    code = ErrorCode.OUT_OF_TURN
    close_code = CloseCode.BAD_MESSAGE


class Unauthenticated(ProtocolError):
    """The token is missing, not valid or expired."""

    code = ErrorCode.UNAUTHENTICATED
    close_code = CloseCode.UNAUTHENTICATED


class Forbidden(ProtocolError):
    """The token is for another room."""

    code = ErrorCode.FORBIDDEN
    close_code = CloseCode.FORBIDDEN
