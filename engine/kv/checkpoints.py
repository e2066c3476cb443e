"""The state of layers that sum up all tokens into one, and copies of it at some lengths.

Of keys and values the last ones can be forgotten; of a sum they cannot. So a context that goes
back does so to the last length of which the whole state was copied, or to its beginning:

    tokens   0 ──────────●──────────────●─────────●─────
                     a checkpoint   another one   live
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

# Those of one prompt. A state is as large as the keys and values of a thousand tokens or more.
MAX_CHECKPOINTS = 3
# A question and what a template puts behind it are rarely longer.
QUESTION_TOKENS = 64


@dataclass(frozen=True)
class StateShape:
    """How the state of one session is laid out in all recurrent layers.

    Each layer has a matrix of fp32 per head, and the last `taps` inputs of its convolution.
    """

    layers: int
    heads: int
    key_dim: int
    value_dim: int
    taps: int
    channels: int
    dtype: torch.dtype
    device: torch.device

    @property
    def matrix_bytes(self) -> int:
        """Bytes of all matrices."""
        return self.layers * self.heads * self.key_dim * self.value_dim * torch.float32.itemsize

    @property
    def bytes(self) -> int:
        """Bytes of one state."""
        return self.matrix_bytes + self.layers * self.taps * self.channels * self.dtype.itemsize

    @property
    def reserved_bytes(self) -> int:
        """Bytes that a context takes for its live state and all checkpoints that it may have."""
        return (1 + MAX_CHECKPOINTS) * self.bytes

    def encoded(self) -> str:
        """Name the layout."""
        parts = (self.layers, self.heads, self.key_dim, self.value_dim, self.taps, self.channels)
        return f"state {' '.join(map(str, parts))} {self.dtype}"


class State:
    """One state as one tensor of bytes, seen as what its layers read and write.

    `matrices` is [layers, heads, key_dim, value_dim], `inputs` [layers, taps, channels].
    """

    def __init__(self, shape: StateShape, buffer: torch.Tensor | None = None) -> None:
        # Before the first token everything is zero.
        self.buffer = torch.zeros(shape.bytes, dtype=torch.uint8, device=shape.device)
        if buffer is not None:
            self.buffer.copy_(buffer)
        matrices = self.buffer[: shape.matrix_bytes].view(torch.float32)
        self.matrices = matrices.view(shape.layers, shape.heads, shape.key_dim, shape.value_dim)
        inputs = self.buffer[shape.matrix_bytes :].view(shape.dtype)
        self.inputs = inputs.view(shape.layers, shape.taps, shape.channels)


class Checkpoints:
    """A context's live state, true of all its tokens, and copies at earlier lengths.

    `mark` says where copies are wanted; a step asks `pass_over` which of them it owes.
    """

    def __init__(self, shape: StateShape) -> None:
        self.shape = shape
        self.live: State | None = None
        self._saved: dict[int, State] = {}
        self._marks: frozenset[int] = frozenset()

    def allocate(self) -> None:
        """Take memory for the live state; done again it changes nothing."""
        if self.live is None:
            self.live = State(self.shape)

    def release(self) -> None:
        """Give all memory back."""
        self.live = None
        self._saved.clear()
        self._marks = frozenset()

    def mark_prompt(self, known: int, length: int) -> None:
        """Ask for copies where a prompt of `length` tokens may part from the next one.

        Where it parts from what was `known`, that is the end of the turn before; before its
        question, when another one is asked; one token before its end, when the same one is.
        """
        self.mark((known, max(known, length - QUESTION_TOKENS), length - 1))

    def mark(self, lengths: Iterable[int]) -> None:
        """Ask for a copy at each of these lengths instead of those asked for before."""
        self._marks = frozenset(lengths)

    def pass_over(self, start: int, stop: int) -> list[tuple[int, State]]:
        """Return the checkpoints that a step from `start` to before `stop` has to fill, in order.

        The oldest ones give way before memory is taken. When the step fails, what it was to fill
        is worth nothing, and the context is released.
        """
        due = sorted(at for at in self._marks if max(start, 1) <= at < stop)
        self._marks = frozenset(at for at in self._marks if at >= stop)
        opened = []
        for at in due[-MAX_CHECKPOINTS:]:
            if at not in self._saved:
                self._trim(MAX_CHECKPOINTS - 1)
                self._saved[at] = State(self.shape)
                opened.append((at, self._saved[at]))
        return opened

    def back_to(self, length: int) -> int:
        """Make the last checkpoint up to `length` the live state; return how many tokens it has."""
        assert self.live is not None, "only what was given room has tokens"
        for at in [at for at in self._saved if at > length]:
            del self._saved[at]
        reached = max(self._saved, default=0)
        if reached:
            self.live.buffer.copy_(self._saved[reached].buffer)
        else:
            self.live.buffer.zero_()
        return reached

    def at(self, length: int) -> dict[int, torch.Tensor]:
        """Return all states by their lengths, the live one among them, which is at `length`."""
        states = {at: state.buffer for at, state in sorted(self._saved.items())}
        return states | ({length: self.live.buffer} if self.live is not None and length else {})

    def take(self, states: dict[int, torch.Tensor], length: int) -> int:
        """Begin with states that were kept elsewhere; return up to `length` how far one goes."""
        assert self.live is not None and not self._saved, "given room, and nothing known"
        usable = sorted(at for at in states if at <= length)
        for at in usable[:-1][-MAX_CHECKPOINTS:]:
            self._saved[at] = State(self.shape, states[at])
        if usable:
            self.live.buffer.copy_(states[usable[-1]])
        return usable[-1] if usable else 0

    def _trim(self, count: int) -> None:
        while len(self._saved) > count:
            del self._saved[min(self._saved)]
