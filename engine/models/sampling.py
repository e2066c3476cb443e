"""Logits to tokens, so that neither batch mates nor windows can shift a choice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.api import Turn


@dataclass(frozen=True)
class Sampling:
    """How one turn chooses; `temperature` 0 is greedy, and the filters then change nothing."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0

    @classmethod
    def of(cls, turn: Turn) -> Sampling:
        """Take from a turn what concerns the choice."""
        return cls(
            temperature=turn.temperature,
            top_k=turn.top_k,
            top_p=turn.top_p,
            min_p=turn.min_p,
            repetition_penalty=turn.repetition_penalty,
            presence_penalty=turn.presence_penalty,
            frequency_penalty=turn.frequency_penalty,
            seed=turn.seed,
        )

    @property
    def is_penalising(self) -> bool:
        """Whether tokens that stand there already count for less."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )


def penalise(
    logits: torch.Tensor, sampling: Sampling, prompt: Sequence[int], made: Sequence[int]
) -> torch.Tensor:
    """Return `logits` [vocabulary] less what repeats; the given ones stay as they are.

    The repetition penalty (CTRL, arXiv:1909.05858) is over prompt and answer, as in transformers;
    presence and frequency penalties are over the answer alone, as in OpenAI's API.
    """
    changed = logits.float().clone()
    if sampling.repetition_penalty != 1:
        seen = torch.tensor(sorted({*prompt, *made}), device=logits.device)
        values = changed[seen]
        factor = sampling.repetition_penalty
        changed[seen] = torch.where(values < 0, values * factor, values / factor)
    if made and (sampling.presence_penalty or sampling.frequency_penalty):
        counts = Counter(made)
        said = torch.tensor(list(counts), device=logits.device)
        times = torch.tensor(list(counts.values()), device=logits.device)
        changed[said] -= sampling.presence_penalty + sampling.frequency_penalty * times
    return changed


def choose(logits: torch.Tensor, sampling: Sampling, position: int) -> int:
    """Pick a token from `logits` [vocabulary]; the draw depends on seed and position alone.

    Filters come in the order of transformers: temperature, top-k, top-p, min-p.
    """
    if sampling.temperature <= 0:
        return int(logits.argmax())
    probabilities = torch.softmax(logits.float() / sampling.temperature, dim=-1)
    ordered, tokens = probabilities.sort(descending=True, stable=True)
    cumulative = ordered.cumsum(0)
    kept = len(tokens)
    if sampling.top_k:
        kept = min(kept, sampling.top_k)
    # top_p is a part of what top_k left. The token that crosses it belongs to the nucleus, so at
    # least one always remains; min_p is relative to the first and keeps that one, too.
    nucleus = sampling.top_p * float(cumulative[kept - 1])
    kept = min(kept, int((cumulative < nucleus).sum()) + 1)
    if sampling.min_p:
        kept = min(kept, int((ordered >= sampling.min_p * ordered[0]).sum()))
    draw = random.Random(f"{sampling.seed}:{position}").random() * float(cumulative[kept - 1])
    index = int(torch.searchsorted(cumulative[:kept], draw, right=True))
    return int(tokens[min(index, kept - 1)])


def confidence(logits: torch.Tensor, token: int) -> float:
    """Return the probability that `logits` [vocabulary] give a token.

    It is the model's own, before penalties, filters and temperature.
    """
    wide = logits.float()
    return float((wide[token] - wide.logsumexp(dim=0)).exp())
