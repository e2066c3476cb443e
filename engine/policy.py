"""How many prompt tokens a step may take, as pure functions of numbers."""

from __future__ import annotations

# Tokens of prefill beside so many decoding turns: a step grows by about 0.4 ms a token and
# 1.8 ms a decoding turn (SmolLM2, two cores), and people notice steps above 100 ms.
_LADDER = ((0, 512), (2, 96), (4, 64), (8, 32), (16, 16))
SMALLEST_WINDOW = 8


def window(decoding: int, step_tokens: int) -> int:
    """Return the prefill tokens of a step: large when nobody streams, small when many do."""
    room = max(step_tokens - decoding, 0)
    for most, tokens in _LADDER:
        if decoding <= most:
            return min(tokens if decoding else step_tokens, room)
    return min(SMALLEST_WINDOW, room)


def shares(remaining: list[int], window_tokens: int) -> list[int]:
    """Divide a window among prompts, oldest first, so that a short one does not wait for a long.

    Each gets an equal share at least `SMALLEST_WINDOW` wide; what one does not need goes on to
    the next, and what is left over at the end to the oldest.
    """
    given = [0] * len(remaining)
    if not remaining:
        return given
    share = max(window_tokens // len(remaining), SMALLEST_WINDOW)
    left = window_tokens
    for _ in range(2):
        for index, wanted in enumerate(remaining):
            more = min(wanted - given[index], share, left)
            given[index] += more
            left -= more
        share = left
    return given
