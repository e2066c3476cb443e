"""Contexts with known bits, and disks that misbehave on purpose."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from pathlib import Path

import torch

from engine.kv.blocks import BLOCK, Memory, cut, cut_states
from engine.kv.checkpoints import StateShape
from engine.kv.context import Context, Kept, KVShape, LayerGroup
from engine.kv.disk import open_unbuffered
from engine.kv.files import Save
from engine.kv.keys import Identity

SHAPE = KVShape.uniform(
    layers=2, heads=1, head_dim=4, dtype=torch.bfloat16, device=torch.device("cpu")
)
# Layers of two kinds, as a model whose windowed layers are narrower; the last one shares.
MIXED = KVShape(
    (LayerGroup(2, 2, 4), LayerGroup(1, 1, 8)),
    ((0, 0), (1, 0), (0, 1), (1, 0)),
    torch.bfloat16,
    torch.device("cpu"),
)
WEIGHTS = Identity(b"weights-1", SHAPE)
STATE = StateShape(
    layers=3,
    heads=2,
    key_dim=4,
    value_dim=5,
    taps=3,
    channels=7,
    dtype=torch.bfloat16,
    device=torch.device("cpu"),
)
HYBRID = replace(SHAPE, state=STATE)
SUMS = Identity(b"weights-2", HYBRID)
KEY = "clinic\0ward-3"


def context_of(tokens: list[int], shape: KVShape = SHAPE, spans=()) -> Context:
    """A context whose bits follow from its tokens, so that a mixed-up block is seen."""
    context = Context(shape)
    context.resize(max(len(tokens), 1))
    extend(context, tokens)
    context.spans = tuple(spans)
    return context


def extend(context: Context, tokens: list[int]) -> None:
    """Write further tokens as a step would."""
    start, total = context.length, context.length + len(tokens)
    if total > context.capacity:
        context.resize(total)
    copies = dict(context.states.pass_over(start, total)) if context.states is not None else {}
    for place, token in enumerate(tokens, start):
        if place in copies:
            copies[place].buffer.copy_(context.states.live.buffer)
        chance = torch.Generator().manual_seed(token * 1_000_003 + place)
        for store in context.stores:
            bits = torch.randn(store[:, :, :, 0].shape, generator=chance)
            store[:, :, :, place] = bits.to(context.shape.dtype)
        if context.states is not None:
            live = context.states.live
            live.matrices.mul_(0.9).add_(torch.randn(live.matrices.shape, generator=chance))
            live.inputs.copy_(torch.cat([live.inputs[:, 1:], live.inputs[:, :1] + token], dim=1))
    context.tokens += tokens


def is_same(context: Context, other: Context) -> bool:
    """Whether both hold the same tokens with the same bits."""
    if context.tokens != other.tokens:
        return False
    length = context.length
    if not length:
        return True
    if context.states is not None and not torch.equal(
        context.states.live.buffer, other.states.live.buffer
    ):
        return False
    return all(
        torch.equal(one[:, :, :, :length], two[:, :, :, :length])
        for one, two in zip(context.stores, other.stores, strict=True)
    )


def whole_save(context: Context, number: int, key: str = KEY, answers=None) -> Save:
    """Everything of a context as one save."""
    memory = Memory.of(context, answers or {})
    save = Save(key, number, None, 0, cut(context), memory, cut_states(context))
    context.kept = Kept(context.length, number, frozenset(memory.states))
    return save


def delta_save(context: Context, number: int, key: str = KEY) -> Save:
    """What was added to a context since its last save."""
    kept, memory = context.kept, Memory.of(context, {})
    first = kept.tokens // BLOCK
    states = cut_states(context, kept.states)
    save = Save(key, number, kept.number, first, cut(context, first), memory, states)
    context.kept = Kept(context.length, number, frozenset(memory.states))
    return save


def some_tokens(count: int, seed: int = 1) -> list[int]:
    """Token ids as a tokenizer might give them."""
    return random.Random(seed).choices(range(40_000), k=count)


class FullDisk:
    """Opens files on a disk with so many bytes left; None for one that is never full.

    `failing` counts the writes that were refused.
    """

    def __init__(self, left: int | None = None) -> None:
        self.left = left
        self.failing = 0

    def __call__(self, path: Path, mode: str):
        file = open_unbuffered(path, mode)
        return file if mode == "rb" else _Short(file, self)


class _Short:
    def __init__(self, file, disk: FullDisk) -> None:
        self._file, self._disk = file, disk

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def __getattr__(self, name: str):
        return getattr(self._file, name)

    def write(self, data) -> int:
        """Write what fits, as the system does: a part first, then the refusal."""
        if self._disk.left is None:
            return self._file.write(data)
        if not self._disk.left and len(data):
            self._disk.failing += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._file.write(data[: self._disk.left])
        self._disk.left -= written
        return written
