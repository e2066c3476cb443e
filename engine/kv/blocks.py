"""What is kept of a session outside the live contexts: compact blocks of KV and what they mean."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

import msgspec
import torch

from engine.kv.context import Context, Kept, KVShape, MediaSpan

# Tokens of all layers that are stored, checked and dropped together.
BLOCK = 32


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """What a record's blocks mean: `tokens` in order, media among them, answers by turn id.

    Token ids are packed, 4 bytes each, because they count towards the budgets. `states` are the
    lengths of which there is a state, rising; empty for a model without recurrent layers.
    """

    tokens: bytes
    spans: tuple[tuple[bytes, int, int], ...]
    answers: dict[str, bytes]
    # Files that were written without it are read as having none.
    states: tuple[int, ...] = ()

    @classmethod
    def of(cls, context: Context, answers: Mapping[str, Sequence[int]]) -> Memory:
        """Pack what a live session knows now."""
        written = (span for span in context.spans if span.start < context.length)
        return cls(
            tokens=_packed(context.tokens),
            spans=tuple((span.digest, span.start, span.length) for span in written),
            answers={turn: _packed(tokens) for turn, tokens in answers.items()},
            states=tuple(states_of(context)),
        )

    @property
    def length(self) -> int:
        """How many tokens there are."""
        return len(self.tokens) // 4

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, names and small objects left out."""
        spans = sum(len(digest) for digest, _, _ in self.spans)
        return len(self.tokens) + spans + sum(len(made) for made in self.answers.values())

    def token_ids(self) -> list[int]:
        """Return the tokens."""
        return _unpacked(self.tokens)

    def media(self) -> tuple[MediaSpan, ...]:
        """Return the media among the tokens."""
        return tuple(MediaSpan(*span) for span in self.spans)

    def spoken(self) -> dict[str, list[int]]:
        """Return the tokens of each answer, by turn id."""
        return {turn: _unpacked(made) for turn, made in self.answers.items()}


@dataclass(frozen=True)
class Record:
    """A session's KV away from the live contexts.

    Block n holds the tokens [n * BLOCK, …) as a contiguous tensor in RAM (`KVShape.block_shape`);
    only the last one may be shorter than BLOCK. `tier` is where it was found. `states` are those
    that `memory` names, in its order.
    """

    memory: Memory
    blocks: list[torch.Tensor]
    kept: Kept | None = None
    tier: Literal["ram", "disk"] = "ram"
    states: tuple[torch.Tensor, ...] = ()

    @property
    def bytes(self) -> int:
        """What it takes from the RAM budget."""
        parts = (*self.blocks, *self.states)
        return self.memory.size_bytes + sum(part.nbytes for part in parts)


def block_count(tokens: int) -> int:
    """Return how many blocks hold so many tokens."""
    return -(-tokens // BLOCK)


def bytes_from(context: Context, first: int, stored: Set[int] = frozenset()) -> int:
    """Return what `cut` from block `first` on and `cut_states` will allocate."""
    states = sum(state.nbytes for at, state in states_of(context).items() if at not in stored)
    return max(context.length - first * BLOCK, 0) * context.shape.token_bytes + states


def states_of(context: Context) -> dict[int, torch.Tensor]:
    """Return the states that a context has by their lengths, rising."""
    return context.states.at(context.length) if context.states is not None else {}


def cut_states(context: Context, stored: Set[int] = frozenset()) -> dict[int, torch.Tensor]:
    """Copy the states that are not `stored` yet to RAM."""
    states = states_of(context).items()
    return {at: state.to("cpu", copy=True) for at, state in states if at not in stored}


def cut(context: Context, first: int = 0) -> list[torch.Tensor]:
    """Copy the context from block `first` on to RAM, the bits as they are."""
    if not context.stores:
        return []
    return [
        context.read(start, min(start + BLOCK, context.length)).to(
            "cpu", copy=True, memory_format=torch.contiguous_format
        )
        for start in range(first * BLOCK, context.length, BLOCK)
    ]


def paste(record: Record, context: Context, tokens: int) -> None:
    """Write the first `tokens` of a record into an empty context that has room for them.

    With recurrent layers only as many of them as the last state up to there is true of.
    """
    assert context.stores and context.length == 0, "reserved, and nothing written"
    assert tokens <= min(context.capacity, record.memory.length), "reserved for the whole prompt"
    if context.states is not None:
        states = dict(zip(record.memory.states, record.states, strict=True))
        tokens = context.states.take(states, tokens)
    for start, block in zip(range(0, tokens, BLOCK), record.blocks, strict=False):
        context.write(start, block[:, :, :, : tokens - start])
    context.tokens = record.memory.token_ids()[:tokens]
    context.spans = record.memory.media()


def empty_block(shape: KVShape, tokens: int) -> torch.Tensor:
    """Return memory for a block that is about to be read."""
    return torch.empty(shape.block_shape(tokens), dtype=shape.dtype)


def raw(block: torch.Tensor) -> memoryview:
    """Return a block's bytes without copying them."""
    return block.view(-1).view(torch.uint8).numpy().data


def _packed(tokens: Sequence[int]) -> bytes:
    return array("I", tokens).tobytes()


def _unpacked(packed: bytes) -> list[int]:
    return array("I", packed).tolist()
