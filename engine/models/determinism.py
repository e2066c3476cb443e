"""Whether what a model computes for a session depends on what is computed beside it."""

from __future__ import annotations

import torch

from engine.kv.blocks import states_of
from engine.kv.context import GRAIN, Context
from engine.models.backend import Backend, Segment

# Prime, so that no window of the check divides it.
TOKENS = 71
WINDOWS = (TOKENS, 1, 7, 33)


def is_deterministic(backend: Backend) -> bool:
    """Compute one prompt in several ways and compare bit for bit: keys, values, states, logits.

    Alone in one window, in windows of other sizes, and beside another session; a second or two
    with the embedded model on two cores.
    """
    vocabulary = int(backend.model.config.get_text_config(decoder=True).vocab_size)
    tokens = [(index * 7919 + 11) % vocabulary for index in range(TOKENS)]
    expected = _computed(backend, tokens, TOKENS)
    ways = [_computed(backend, tokens, window) for window in WINDOWS[1:]]
    mates = [_computed(backend, tokens, window, mate=tokens[::-1]) for window in (TOKENS, 7)]
    return all(
        all(torch.equal(one, other) for one, other in zip(way, expected, strict=True))
        for way in (*ways, *mates)
    )


def _computed(
    backend: Backend, tokens: list[int], window: int, mate: list[int] | None = None
) -> list[torch.Tensor]:
    """Return keys and values of all tokens, states, and the logits behind the last one."""
    context, beside = Context(backend.shape), Context(backend.shape)
    context.resize(GRAIN)
    beside.resize(GRAIN)
    logits = torch.empty(0)
    for start in range(0, len(tokens), window):
        part = tokens[start : start + window]
        step = [Segment(context, part, wants_logits=True)]
        if mate is not None and beside.length < len(mate):
            step.insert(0, Segment(beside, mate[beside.length :][: window // 2 + 1], False))
        logits = backend.run(step)[-1]
    return [context.read(0, TOKENS), *states_of(context).values(), logits]
