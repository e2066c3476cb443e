"""Logits to tokens, so that neither batch mates nor windows can shift a choice."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Sampling:
    """How one turn chooses; `temperature` 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


def choose(logits: torch.Tensor, sampling: Sampling, position: int) -> int:
    """Pick a token from `logits` [vocabulary]; the draw depends on seed and position alone."""
    if sampling.temperature <= 0:
        return int(logits.argmax())
    probabilities = torch.softmax(logits.float() / sampling.temperature, dim=-1)
    ordered, tokens = probabilities.sort(descending=True, stable=True)
    cumulative = ordered.cumsum(0)
    # The token that crosses top_p belongs to the nucleus, so at least one always remains.
    kept = int((cumulative < sampling.top_p).sum()) + 1
    kept = min(kept, len(tokens))
    draw = random.Random(f"{sampling.seed}:{position}").random() * float(cumulative[kept - 1])
    index = int(torch.searchsorted(cumulative[:kept], draw, right=True))
    return int(tokens[min(index, kept - 1)])
