"""Where a prompt's tokens stand, and which of them are pictures: pure, but for tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.kv.context import MediaSpan


@dataclass(frozen=True)
class Features:
    """What a tower made of one picture or recording: `rows` [placeholders, hidden size].

    `deep` holds what further layers of the tower add to the first layers of the language model
    ("deepstack"), each [image tokens, hidden size].
    """

    rows: torch.Tensor
    deep: tuple[torch.Tensor, ...] = ()

    @property
    def bytes(self) -> int:
        """Memory of all tensors."""
        return sum(t.numel() * t.element_size() for t in (self.rows, *self.deep))

    def part(self, start: int, stop: int) -> Features:
        """Return the rows `[start, stop)`."""
        return Features(self.rows[start:stop], tuple(layer[start:stop] for layer in self.deep))


@dataclass(frozen=True)
class Picture:
    """A picture as the model takes it.

    `tokens` stand for it in a prompt, those that are `placeholder` get a row of `features` each.
    `digest` names the pixels and how they were prepared, so equal digests mean equal features.
    `grid` is what positions need to know of its shape, None where they do not depend on it.
    """

    digest: bytes
    tokens: tuple[int, ...]
    placeholder: int
    features: Features
    grid: torch.Tensor | None = None

    def rows_before(self, index: int) -> int:
        """Count the placeholders among the first `index` tokens."""
        return sum(token == self.placeholder for token in self.tokens[:index])


@dataclass(frozen=True)
class Sound(Picture):
    """A recording as the model takes it, in everything else like a picture.

    `frames` is how many of its spectrogram's are sound, which positions need to know.
    """

    frames: int = 0


@dataclass(frozen=True)
class Placed:
    """A picture or recording whose tokens begin at `start` of a prompt."""

    start: int
    picture: Picture

    @property
    def span(self) -> MediaSpan:
        """Its identity among the tokens of a context."""
        return MediaSpan(self.picture.digest, self.start, len(self.picture.tokens))


@dataclass(frozen=True)
class Layout:
    """A prompt's pictures and recordings and, where they bend them, its positions.

    `blocks` are the runs of tokens `[start, stop)` that see each other, later ones too: a step
    computes each of them as a whole. `positions` is [axes, prompt tokens]; None where the position
    of a token is its index. Behind the prompt every axis goes on by one from index + `delta`.
    """

    placed: tuple[Placed, ...] = ()
    positions: torch.Tensor | None = None
    delta: int = 0
    blocks: tuple[tuple[int, int], ...] = ()

    def whole(self, start: int, count: int) -> int:
        """Return how many tokens from `start` on to compute instead of `count`, no block cut.

        Fewer, up to the block that `count` ends in; or all of that block when it is the next.
        """
        for first, stop in self.blocks:
            if first < start + count < stop:
                return first - start if first > start else stop - start
        return count

    def blocks_of(self, start: int, stop: int) -> tuple[tuple[int, int], ...]:
        """Return the blocks among the tokens `[start, stop)`, which cut none."""
        among = tuple(block for block in self.blocks if block[0] < stop and block[1] > start)
        assert all(start <= first and last <= stop for first, last in among), "a block was cut"
        return among

    def positions_of(self, start: int, stop: int) -> torch.Tensor:
        """Return the positions of the tokens `[start, stop)`: [axes, stop - start]."""
        rest = torch.arange(start, stop)[None]
        if self.positions is None:
            return rest
        known = self.positions[:, start:stop]
        made = (rest[:, known.shape[1] :] + self.delta).expand(len(known), -1)
        return torch.cat([known, made], dim=1)

    def features_of(self, start: int, stop: int) -> list[Features]:
        """Return those of the pictures' placeholders among the tokens `[start, stop)`, in order."""
        return self._features(start, stop, False)

    def sounds_of(self, start: int, stop: int) -> list[Features]:
        """Return those of the recordings' placeholders among the tokens `[start, stop)`."""
        return self._features(start, stop, True)

    def _features(self, start: int, stop: int, of_sounds: bool) -> list[Features]:
        parts = []
        for placed in self.placed:
            if isinstance(placed.picture, Sound) is not of_sounds:
                continue
            length = len(placed.picture.tokens)
            first = min(max(start - placed.start, 0), length)
            last = min(max(stop - placed.start, 0), length)
            rows = placed.picture.rows_before(first), placed.picture.rows_before(last)
            if rows[0] < rows[1]:
                parts.append(placed.picture.features.part(*rows))
        return parts


def runs(placed: tuple[Placed, ...]) -> tuple[tuple[int, int], ...]:
    """Return the runs of placeholders of some pictures; those that touch are one."""
    found: list[tuple[int, int]] = []
    for each in placed:
        for index, token in enumerate(each.picture.tokens, each.start):
            if token != each.picture.placeholder:
                continue
            if found and found[-1][1] == index:
                found[-1] = (found[-1][0], index + 1)
            else:
                found.append((index, index + 1))
    return tuple(found)
