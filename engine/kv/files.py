"""The file of one session: frames that are only ever appended, each with its own checksums.

    header | block block … state commit | block commit | …

Block n replaces block n and all behind it, a state the one of its length; a commit says what the
blocks before it mean, and of which lengths the states are still true. Whatever
stands behind the last commit was never finished. Nothing of a file is believed before all that is
needed of it was checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import BinaryIO, TypeVar

import msgspec
import torch
from xxhash import xxh3_64_digest, xxh3_128_digest

from engine.kv.blocks import BLOCK, Memory, block_count, empty_block, raw
from engine.kv.keys import Identity, chain

MAGIC = b"CSKV"
# Kind, bytes of the meta part and of the body, then the digests of both.
_HEAD = struct.Struct("<4sBxxxIQ16s16s")
_HEAD_DIGEST_BYTES = 8
HEAD_BYTES = _HEAD.size + _HEAD_DIGEST_BYTES
_BLOCK_META = struct.Struct("<II16s")
_STATE_META = struct.Struct("<I16s")

Buffer = bytes | memoryview
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class Torn(Exception):
    """The file ends inside a frame: whoever wrote it was stopped there."""


class Damaged(Exception):
    """The file does not say what was written, or it was not written by this format."""


class Foreign(Exception):
    """The file is whole, but of another model, layout or version."""


class Kind(IntEnum):
    """What a frame holds."""

    HEADER = 1
    BLOCK = 2
    COMMIT = 3
    STATE = 4


_KINDS = frozenset(Kind)


class Header(msgspec.Struct, frozen=True, array_like=True):
    """The first frame: `identity` is that of the blocks' keys."""

    identity: bytes
    tenant: str
    session: str

    @property
    def key(self) -> str:
        """The session's name among all tenants."""
        return f"{self.tenant}\0{self.session}"


@dataclass(frozen=True)
class Save:
    """What one write adds: blocks from number `first` on, states, then the commit `memory`.

    It follows the save of the number `follows`, or stands alone when that is None.
    """

    key: str
    number: int
    follows: int | None
    first: int
    blocks: list[torch.Tensor]
    memory: Memory
    states: Mapping[int, torch.Tensor] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """What it holds in RAM until it is written."""
        parts = (*self.blocks, *self.states.values())
        return self.memory.size_bytes + sum(part.nbytes for part in parts)


@dataclass(frozen=True)
class Loaded:
    """A session as its file tells it; the file is good up to `end`."""

    memory: Memory
    blocks: list[torch.Tensor]
    end: int
    states: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True)
class _Frame:
    kind: Kind
    meta: bytes
    body_at: int
    body_bytes: int
    body_digest: bytes


@dataclass(frozen=True)
class _Commit:
    memory: Memory
    places: list[_Frame]
    states: dict[int, _Frame]
    end: int


def frames_of(save: Save, identity: Identity) -> list[Buffer]:
    """Return what a save appends, blocks without a copy."""
    tenant, _, session = save.key.partition("\0")
    frames: list[Buffer] = []
    if save.follows is None:
        header = Header(identity.encoded(), tenant, session)
        frames += _frame(Kind.HEADER, msgspec.msgpack.encode(header))
    keys = chain(identity, tenant, save.memory.token_ids(), save.memory.media())
    for index, block in enumerate(save.blocks, start=save.first):
        meta = _BLOCK_META.pack(index, block.shape[3], keys[index])
        frames += _frame(Kind.BLOCK, meta, raw(block))
    for at, state in save.states.items():
        meta = _STATE_META.pack(at, _state_key(identity, tenant, save.memory, at))
        frames += _frame(Kind.STATE, meta, raw(state))
    return [*frames, *_frame(Kind.COMMIT, msgspec.msgpack.encode(save.memory))]


def read_header(file: BinaryIO, size: int, identity: Identity) -> Header:
    """Return whose file it is. Raises `Torn`, `Damaged`, `Foreign`."""
    frame, _ = _read_frame(file, 0, size)
    if frame.kind is not Kind.HEADER:
        raise Damaged("no header")
    header = _decoded(frame.meta, Header)
    if header.identity != identity.encoded():
        raise Foreign(header.identity.decode(errors="replace"))
    return header


def read_session(file: BinaryIO, size: int, identity: Identity, key: str) -> Loaded:
    """Return the last commit of a file, wholly checked. Raises `Torn`, `Damaged`, `Foreign`.

    `Torn` only when no commit is whole.
    """
    header = read_header(file, size, identity)
    if header.key != key:
        raise Damaged("the file of another session")
    commit = _last_commit(file, size)
    memory = commit.memory
    if len(commit.places) != block_count(memory.length):
        raise Damaged(f"{len(commit.places)} blocks for {memory.length} tokens")
    keys = chain(identity, header.tenant, memory.token_ids(), memory.media())
    blocks = []
    for index, (place, expected) in enumerate(zip(commit.places, keys, strict=True)):
        _, count, stored = _BLOCK_META.unpack(place.meta)
        if stored != expected or count != min(BLOCK, memory.length - index * BLOCK):
            raise Damaged(f"block {index} belongs to other tokens")
        blocks.append(_read_body(file, place, empty_block(identity.shape, count), f"block {index}"))
    states = tuple(_read_states(file, commit, identity, header.tenant))
    return Loaded(memory, blocks, commit.end, states)


def _read_states(
    file: BinaryIO, commit: _Commit, identity: Identity, tenant: str
) -> Iterator[torch.Tensor]:
    shape = identity.shape.state
    for at in commit.memory.states:
        place = commit.states.get(at)
        if place is None or shape is None or not 0 < at <= commit.memory.length:
            raise Damaged(f"no state of {at} tokens")
        _, stored = _STATE_META.unpack(place.meta)
        if stored != _state_key(identity, tenant, commit.memory, at):
            raise Damaged(f"the state of {at} other tokens")
        empty = torch.empty(shape.bytes, dtype=torch.uint8)
        yield _read_body(file, place, empty, f"the state of {at} tokens")


def _state_key(identity: Identity, tenant: str, memory: Memory, at: int) -> bytes:
    """Name a state by all tokens that it sums up, and no other one."""
    return chain(identity, tenant, memory.token_ids()[:at], memory.media())[-1]


def _read_body(file: BinaryIO, place: _Frame, into: torch.Tensor, name: str) -> torch.Tensor:
    if into.nbytes != place.body_bytes:
        raise Damaged(f"{name} has another size")
    file.seek(place.body_at)
    if file.readinto(raw(into)) != into.nbytes:  # type: ignore[attr-defined]
        raise Torn
    if xxh3_128_digest(raw(into)) != place.body_digest:
        raise Damaged(f"{name} has other bits than were written")
    return into


def _last_commit(file: BinaryIO, size: int) -> _Commit:
    places: list[_Frame] = []
    states: dict[int, _Frame] = {}
    last: _Commit | None = None
    for frame, end in _walk(file, size):
        if frame.kind is Kind.BLOCK:
            if len(frame.meta) != _BLOCK_META.size:
                raise Damaged("a block without its number")
            index, _, _ = _BLOCK_META.unpack(frame.meta)
            if index > len(places):
                raise Damaged(f"block {index} behind {len(places)}")
            places[index:] = [frame]
        elif frame.kind is Kind.STATE:
            if len(frame.meta) != _STATE_META.size:
                raise Damaged("a state without its length")
            at, _ = _STATE_META.unpack(frame.meta)
            states[at] = frame
        elif frame.kind is Kind.COMMIT:
            memory = _decoded(frame.meta, Memory)
            if len(memory.tokens) % 4:
                raise Damaged("half a token")
            # A session that went back behind what was written says so by its length alone.
            del places[block_count(memory.length) :]
            last = _Commit(memory, list(places), dict(states), end)
    if last is None:
        raise Torn
    return last


def _walk(file: BinaryIO, size: int) -> Iterator[tuple[_Frame, int]]:
    """Yield the frames and where each ends, up to the first that is not whole."""
    at = 0
    while at < size:
        try:
            frame, at = _read_frame(file, at, size)
        except Torn:
            return
        yield frame, at


def _read_frame(file: BinaryIO, at: int, size: int) -> tuple[_Frame, int]:
    file.seek(at)
    head = file.read(HEAD_BYTES)
    if len(head) < HEAD_BYTES:
        raise Torn
    fields, digest = head[: _HEAD.size], head[_HEAD.size :]
    magic, kind, meta_bytes, body_bytes, meta_digest, body_digest = _HEAD.unpack(fields)
    # Lengths are believed only now: a flipped bit in one would look like a torn file.
    if magic != MAGIC or xxh3_64_digest(fields) != digest or kind not in _KINDS:
        raise Damaged("a frame's head")
    end = at + HEAD_BYTES + meta_bytes + body_bytes
    if end > size:
        raise Torn
    meta = file.read(meta_bytes)
    if xxh3_128_digest(meta) != meta_digest:
        raise Damaged("a frame's meaning")
    return _Frame(Kind(kind), meta, end - body_bytes, body_bytes, body_digest), end


def _frame(kind: Kind, meta: bytes, body: memoryview | None = None) -> Iterable[Buffer]:
    content: Buffer = body if body is not None else b""
    fields = _HEAD.pack(
        MAGIC, kind, len(meta), len(content), xxh3_128_digest(meta), xxh3_128_digest(content)
    )
    # One short piece before the body, so that a small frame is one write.
    return [fields + xxh3_64_digest(fields) + meta, *([body] if body is not None else [])]


def _decoded(meta: bytes, kind: type[_Struct]) -> _Struct:
    try:
        return msgspec.msgpack.decode(meta, type=kind)
    except msgspec.DecodeError as error:
        raise Damaged(str(error)) from None
