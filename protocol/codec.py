"""Bytes to messages and back: the only module that reads or writes JSON.

Whatever a peer sends becomes a message or a coded `BadMessage`, never a bare exception, and
what cannot be stored and read again (a lone surrogate, an integer over 64 bits) is refused at
this border, because one such value in a log kills every replay of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import orjson

from protocol.base import MAX_DEPTH, ClientMessage, ServerMessage
from protocol.errors import BadMessage, ErrorCode
from protocol.events import AnyEvent, Event, UnknownEvent
from protocol.messages import AnyClientMessage, AnyServerMessage
from protocol.shapes import Actor

MAX_BATCH = 256


def _tags(union: Any) -> frozenset[str]:
    return frozenset(str(member.__struct_config__.tag) for member in get_args(union))


_CLIENT_TAGS = _tags(AnyClientMessage)
_SERVER_TAGS = _tags(AnyServerMessage)
_encoder = msgspec.json.Encoder()


def decode_client(frame: bytes | str) -> list[ClientMessage | BadMessage]:
    """Read a text frame from a client: a message, or an array of them.

    One bad member of an array spoils only itself: its place holds a `BadMessage`.
    """
    try:
        members = _members(frame)
    except BadMessage as error:
        return [error]
    read: list[ClientMessage | BadMessage] = []
    for member in members:
        try:
            read.append(_convert(member, AnyClientMessage, _CLIENT_TAGS))
        except BadMessage as error:
            read.append(error)
    return read


def decode_server(frame: bytes | str) -> list[ServerMessage]:
    """Read a text frame from the server; messages that this version cannot read are left out.

    A numbered one stands as an `UnknownEvent` instead, because what comes after it is no gap.
    Raises `BadMessage` when the frame is not JSON, or when a known message that has no number
    does not fit its schema.
    """
    read = (_read_server(member) for member in _members(frame))
    return [message for message in read if message is not None]


def _read_server(member: Any) -> ServerMessage | None:
    try:
        message: ServerMessage = _convert(member, AnyServerMessage, _SERVER_TAGS)
    except BadMessage as error:
        if isinstance(member, dict) and isinstance(seq := member.get("seq"), int) and seq > 0:
            nobody = Actor(id="", name="", kind="system")
            return UnknownEvent(seq=seq, epoch=str(member.get("epoch", "")), at=0, actor=nobody)
        if error.code is ErrorCode.UNKNOWN_TYPE:
            return None
        raise
    return message


def encode(message: ClientMessage | ServerMessage) -> bytes:
    """Write one message as JSON."""
    return _encoder.encode(message)


def join(frames: Sequence[bytes]) -> bytes:
    """Put encoded messages into one text frame without encoding them again."""
    return frames[0] if len(frames) == 1 else b"[" + b",".join(frames) + b"]"


def decode_event(frame: bytes) -> AnyEvent:
    """Read back an event that `encode` wrote; raises `BadMessage` when it is none."""
    try:
        event: AnyEvent = msgspec.json.decode(frame, type=AnyEvent)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadMessage(f"not an event: {error}") from error
    return event


def number(event: Event, seq: int, epoch: str) -> Event:
    """Give an event its place in the room's order."""
    return msgspec.structs.replace(event, seq=seq, epoch=epoch)


def _members(frame: bytes | str) -> list[Any]:
    raw = frame.encode("utf-8", "surrogatepass") if isinstance(frame, str) else frame
    try:
        parsed = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        # orjson gives one exception for three different mistakes of the peer, and stops at 1,024
        # levels. Counting them again took as long as reading did.
        if "depth limit" in str(error):
            raise _too_deep() from None
        if _is_lax_json(raw):
            raise BadMessage(
                "a lone surrogate or a number that is none cannot be stored",
                code=ErrorCode.NOT_STORABLE,
            ) from None
        raise BadMessage(f"not JSON: {error}", code=ErrorCode.BAD_JSON) from None
    if not isinstance(parsed, list):
        return [parsed]
    if len(parsed) > MAX_BATCH:
        raise BadMessage(f"more than {MAX_BATCH} messages in a frame")
    return parsed


def _too_deep() -> BadMessage:
    return BadMessage(f"nested deeper than {MAX_DEPTH} levels", code=ErrorCode.TOO_DEEP)


def _is_lax_json(raw: bytes) -> bool:
    """Whether the standard library, which takes lone surrogates and NaN, can read it."""
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def _convert(member: Any, union: Any, tags: frozenset[str]) -> Any:
    if not isinstance(member, dict) or not isinstance(member.get("type"), str):
        raise BadMessage("a message is an object with a `type`")
    ref = _ref(member)
    if member["type"] not in tags:
        raise BadMessage(
            f"unknown type {member['type'][:64]!r}", code=ErrorCode.UNKNOWN_TYPE, ref=ref
        )
    if tags is _CLIENT_TAGS:
        _refuse_unstorable(member, ref)
    try:
        return msgspec.convert(member, type=union)
    except msgspec.ValidationError as error:
        raise BadMessage(f"{member['type']}: {error}", ref=ref) from None


def _ref(member: dict[str, Any]) -> str | None:
    for name in ("op_id", "turn", "stream"):
        value = member.get(name)
        if isinstance(value, str | int):
            return str(value)[:64]
    return None


def _refuse_unstorable(member: Any, ref: str | None) -> None:
    """Refuse what is too deep, NUL characters, and numbers beyond 64 bits."""
    level, depth = [member], 0
    while level:
        if depth > MAX_DEPTH:
            raise _too_deep()
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                deeper.extend(value.values())
            elif isinstance(value, list):
                deeper.extend(value)
            elif isinstance(value, str) and "\0" in value:
                raise BadMessage("a NUL cannot be stored", code=ErrorCode.NOT_STORABLE, ref=ref)
            # orjson reads an integer over 64 bits as a float.
            elif isinstance(value, float) and abs(value) >= 2**63:
                raise BadMessage("a number over 64 bits", code=ErrorCode.NOT_STORABLE, ref=ref)
        level, depth = deeper, depth + 1
