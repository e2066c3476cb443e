"""The KV of one session in contiguous tensors, and the budget that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

import torch

from engine.kv.checkpoints import Checkpoints, StateShape

# Capacities are multiples of this, so that a few more tokens do not mean another copy.
GRAIN = 256


@dataclass(frozen=True)
class LayerGroup:
    """Layers whose keys and values are laid out alike."""

    layers: int
    heads: int
    head_dim: int

    @property
    def token_elements(self) -> int:
        """Numbers that one token takes in all of them, keys and values together."""
        return 2 * self.layers * self.heads * self.head_dim


@dataclass(frozen=True)
class KVShape:
    """How one token's keys and values are laid out in every layer.

    `places` says for each layer of the model its group and its place there; layers that share
    theirs have the same one, and recurrent ones have none: `state` is what they keep instead, None
    when there are no such layers.
    """

    groups: tuple[LayerGroup, ...]
    places: tuple[tuple[int, int] | None, ...]
    dtype: torch.dtype
    device: torch.device
    state: StateShape | None = None

    @classmethod
    def uniform(
        cls, layers: int, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> KVShape:
        """Return the shape of a model whose layers are all alike."""
        group = LayerGroup(layers, heads, head_dim)
        return cls((group,), tuple((0, layer) for layer in range(layers)), dtype, device)

    @property
    def token_bytes(self) -> int:
        """Bytes that one token takes in all layers, keys and values together."""
        return sum(group.token_elements for group in self.groups) * self.dtype.itemsize

    def bytes_of(self, tokens: int) -> int:
        """Bytes that a context of so many tokens takes."""
        return tokens * self.token_bytes + (self.state.reserved_bytes if self.state else 0)

    def allocate(self, capacity: int) -> tuple[torch.Tensor, ...]:
        """Return a tensor of zeros [layers, 2, heads, capacity, head_dim] for each group."""
        # Masked keys are multiplied by zero, which what lies about in memory may not survive.
        return tuple(
            torch.zeros(
                (group.layers, 2, group.heads, capacity, group.head_dim),
                dtype=self.dtype,
                device=self.device,
            )
            for group in self.groups
        )

    def block_shape(self, tokens: int) -> tuple[int, ...]:
        """Return the shape of all layers' parts of some tokens in one tensor; they are dimension 3.

        That is [layers, 2, heads, tokens, head_dim] where all layers are alike, otherwise
        [1, 1, 1, tokens, what a token takes].
        """
        if len(self.groups) == 1:
            [group] = self.groups
            return group.layers, 2, group.heads, tokens, group.head_dim
        return 1, 1, 1, tokens, sum(group.token_elements for group in self.groups)


@dataclass(frozen=True)
class MediaSpan:
    """Tokens `[start, start + length)` that stand for the media item named by `digest`.

    Their ids say nothing of it: two pictures of one size have the same.
    """

    digest: bytes
    start: int
    length: int


@dataclass(frozen=True)
class Kept:
    """How much of a context is stored: the first `tokens`, by the save of this `number`.

    `states` are the lengths whose states are stored with them.
    """

    tokens: int
    number: int
    states: frozenset[int] = frozenset()

    def upto(self, length: int) -> Kept:
        """Return what of it is still true when all tokens from `length` on are others."""
        states = frozenset(at for at in self.states if at <= length)
        return Kept(min(self.tokens, length), self.number, states)


class Context:
    """One session's KV: `tokens` are those whose keys and values are written, in order.

    `spans` say which of them are media; those behind the last token are not written yet.
    `kept` says what of it is stored bit for bit, so that only the rest has to be written.
    `states` are those of recurrent layers, None for a model that has none.
    """

    def __init__(self, shape: KVShape) -> None:
        self.shape = shape
        self.tokens: list[int] = []
        self.spans: tuple[MediaSpan, ...] = ()
        # One tensor for each group of layers that are laid out alike; none before it has room.
        self.stores: tuple[torch.Tensor, ...] = ()
        self.capacity = 0
        self.kept: Kept | None = None
        self.states = Checkpoints(shape.state) if shape.state is not None else None

    @property
    def length(self) -> int:
        """Tokens written so far."""
        return len(self.tokens)

    @property
    def bytes(self) -> int:
        """What the context takes from the budget."""
        return self.shape.bytes_of(self.capacity) if self.capacity else 0

    def crop(self, length: int) -> None:
        """Forget every token from `length` on; their slots are written again.

        With recurrent layers also those before it, down to the last checkpoint.
        """
        if self.states is not None and length < self.length:
            length = self.states.back_to(length)
        del self.tokens[length:]
        if self.kept is not None:
            self.kept = self.kept.upto(length)

    def resize(self, capacity: int) -> None:
        """Grow to `capacity` tokens, keeping what is written."""
        grown = self.shape.allocate(capacity)
        if self.tokens:
            for new, old in zip(grown, self.stores, strict=True):
                new[:, :, :, : self.length] = old[:, :, :, : self.length]
        self.stores, self.capacity = grown, capacity
        if self.states is not None:
            self.states.allocate()

    def layer(self, layer: int) -> torch.Tensor:
        """Return the keys and values that a layer of the model sees [2, heads, …, head_dim]."""
        place = self.shape.places[layer]
        assert place is not None, "asked only of layers that have keys and values"
        return self.stores[place[0]][place[1]]

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Return what all layers hold of the tokens `[start, stop)`, shaped as a block."""
        parts = [store[:, :, :, start:stop] for store in self.stores]
        if len(parts) == 1:
            return parts[0]
        rows = [part.permute(3, 0, 1, 2, 4).reshape(stop - start, -1) for part in parts]
        return torch.cat(rows, dim=1)[None, None, None]

    def write(self, start: int, block: torch.Tensor) -> None:
        """Put what `read` returned to the tokens from `start` on."""
        stop = start + block.shape[3]
        if len(self.stores) == 1:
            self.stores[0][:, :, :, start:stop] = block
            return
        sizes = [group.token_elements for group in self.shape.groups]
        rows = torch.split(block[0, 0, 0], sizes, dim=1)
        for store, part in zip(self.stores, rows, strict=True):
            layers, two, heads, _, width = store.shape
            shaped = part.reshape(stop - start, layers, two, heads, width)
            store[:, :, :, start:stop] = shaped.permute(1, 2, 3, 0, 4)

    def release(self) -> None:
        """Give the memory back; the session's next turn computes everything again."""
        self.tokens.clear()
        self.spans = ()
        self.stores, self.capacity = (), 0
        if self.states is not None:
            self.states.release()
        # What is computed again may differ in its last bits from what is stored.
        self.kept = None


def common_prefix(left: list[int], right: list[int]) -> int:
    """Return how many tokens both lists begin with."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(i for i in range(limit) if left[i] != right[i])


def whole_spans(known: int, kept: tuple[MediaSpan, ...], wanted: tuple[MediaSpan, ...]) -> int:
    """Return how many of `known` equal tokens stand for the same media, no span cut in two."""
    for have, want in zip_longest(kept, wanted):
        first = min(span.start for span in (have, want) if span is not None)
        if first >= known:
            break
        if have != want or have.start + have.length > known:
            return first
    return known


class Budget:
    """Bytes of KV over all sessions; under pressure the least recently used idle one goes.

    Memory is reserved before it is allocated, so the peak stays below the limit. `demote` is
    called with a context that is about to lose its memory, to keep what it holds elsewhere.
    """

    def __init__(
        self, limit_bytes: int, demote: Callable[[str, Context], None] = lambda key, context: None
    ) -> None:
        self.limit_bytes = limit_bytes
        self._demote = demote
        self.evictions = 0
        # Insertion order is the order of last use.
        self._contexts: dict[str, Context] = {}
        self._busy: set[str] = set()

    @property
    def used_bytes(self) -> int:
        """Bytes allocated now."""
        # Copied at once, because the metrics page asks from another thread.
        return sum(context.bytes for context in list(self._contexts.values()))

    def could_ever_fit(self, tokens: int, shape: KVShape) -> bool:
        """Whether a context of so many tokens fits when nothing else is kept."""
        return shape.bytes_of(_rounded(tokens)) <= self.limit_bytes

    def reserve(self, session: str, context: Context, tokens: int) -> bool:
        """Make room for `tokens` and mark the session busy; False when busy ones hold it all.

        Raises `RuntimeError` when the machine has not the memory that the budget allows; then the
        session is as it was.
        """
        capacity = max(_rounded(tokens), context.capacity)
        growing = capacity > context.capacity
        self._contexts.pop(session, None)
        wanted = context.shape.bytes_of(capacity)
        # While a context grows the old and the new tensor exist together.
        peak = wanted + (context.capacity * context.shape.token_bytes if growing else 0)
        if not self._make_room(peak) and growing and context.capacity:
            self._demote(session, context)
            context.release()
            peak = wanted
        fits = self._make_room(peak)
        self._contexts[session] = context
        if fits and growing:
            context.resize(capacity)
        if fits:
            self._busy.add(session)
        return fits

    def settle(self, session: str) -> None:
        """Mark the session idle and most recently used."""
        self._busy.discard(session)
        self.touch(session)

    def touch(self, session: str) -> None:
        """Make the session the last to be evicted."""
        if context := self._contexts.pop(session, None):
            self._contexts[session] = context

    def demote(self, session: str) -> None:
        """Take a session out of memory, keeping what it holds elsewhere."""
        if context := self._contexts.get(session):
            self._demote(session, context)
        self.forget(session)

    def forget(self, session: str) -> None:
        """Drop a session's KV and its entry."""
        self._busy.discard(session)
        if context := self._contexts.pop(session, None):
            context.release()

    def _make_room(self, wanted_bytes: int) -> bool:
        for session in list(self._contexts):
            if self.used_bytes + wanted_bytes <= self.limit_bytes:
                break
            if session not in self._busy and self._contexts[session].capacity:
                context = self._contexts.pop(session)
                self._demote(session, context)
                context.release()
                self.evictions += 1
        return self.used_bytes + wanted_bytes <= self.limit_bytes


def _rounded(tokens: int) -> int:
    return -(-tokens // GRAIN) * GRAIN
