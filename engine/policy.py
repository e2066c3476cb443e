"""How a step's tokens are divided, as arithmetic on numbers: no tensor, no clock, no thread."""

from __future__ import annotations

from collections.abc import Mapping

from engine.api import TurnKind

SMALLEST_WINDOW = 8
# A prompt of this length is quick on any machine that can run its model.
QUICK_PROMPT = 128
# Into an idle engine a prompt of this length goes in one pass, a longer one in passes this long:
# whoever asks meanwhile waits for one.
WHOLE_PROMPT = 1024
IDLE_PASS_S = 0.5
# Nobody streams, but a question may come: a background pass is no longer than this.
BACKGROUND_WINDOW = 32
# A step with a prompt in it takes at most so many times the step without, as far as 8 tokens allow.
STRETCH = 1.7
# How much the newest measurement counts.
WEIGHT = 0.2
# No machine is faster; guards a division.
MIN_TOKEN_S = 1e-7
# What is believed before anything was measured (SmolLM2 in bf16 on two cores), in seconds.
FIRST_TOKEN_S = 0.0004
FIRST_STEP_S = 0.020
FIRST_TURN_S = 0.0018

# Shares of a window when all kinds want more than it holds; background gets what others leave.
WEIGHTS: Mapping[TurnKind, int] = {"text": 4, "image": 2, "video": 1, "background": 0}


class Pace:
    """What a step costs, measured; and from it how much prompt one may hold.

    A step of n decoding turns takes `decode_s(n)`; each token of prompt in it adds to that.
    """

    def __init__(self, inter_token_s: float) -> None:
        self._inter_token_s = inter_token_s
        self._decode_s: dict[int, float] = {}
        self.prompt_token_s = FIRST_TOKEN_S

    def note(self, decoding: int, prompt_tokens: int, seconds: float) -> None:
        """Learn from a step."""
        if not prompt_tokens:
            size = _size(decoding)
            self._decode_s[size] = _average(self._decode_s.get(size), seconds)
            return
        spent = seconds - (self.decode_s(decoding) if decoding else 0.0)
        self.prompt_token_s = _average(
            self.prompt_token_s, max(spent, MIN_TOKEN_S * prompt_tokens) / prompt_tokens
        )

    def decode_s(self, decoding: int) -> float:
        """Return the expected seconds of a step of so many decoding turns and no prompt."""
        known = self._decode_s.get(_size(decoding))
        return known if known is not None else FIRST_STEP_S + FIRST_TURN_S * decoding

    def window(self, decoding: int, step_tokens: int) -> int:
        """Return the prompt tokens of a step: all of it when nobody streams, few when many do.

        A power of two from `SMALLEST_WINDOW` on, so that steps repeat each other's sizes.
        """
        room = max(step_tokens - decoding, 0)
        if not decoding:
            return min(room, max(WHOLE_PROMPT, int(IDLE_PASS_S / self.prompt_token_s)))
        alone = self.decode_s(decoding)
        spare = min(self._inter_token_s - alone, (STRETCH - 1) * alone)
        width = SMALLEST_WINDOW
        while 2 * width * self.prompt_token_s <= spare and 2 * width <= step_tokens:
            width *= 2
        return min(width, room)

    def quick_window(self, decoding: int, step_tokens: int) -> int:
        """Return the prompt tokens of a step that takes no longer than words may wait."""
        if decoding:
            return self.window(decoding, step_tokens)
        # A few tokens cost as much as twice as many: what they took says too much of each.
        return min(step_tokens, max(QUICK_PROMPT, int(self._inter_token_s / self.prompt_token_s)))


class Deficits:
    """Deficit round robin between kinds of turns (Shreedhar and Varghese, 1995).

    What a kind could not use of its share because the window was too small, it is owed; a kind
    that wants nothing is owed nothing.
    """

    def __init__(self) -> None:
        self._owed: dict[TurnKind, float] = {}

    def divide(self, wanted: Mapping[TurnKind, int], window: int) -> dict[TurnKind, int]:
        """Return how much of a window each kind gets; nothing of it is left while any wants."""
        asking = {kind: count for kind, count in wanted.items() if count > 0}
        whole = sum(WEIGHTS[kind] for kind in asking)
        owed = {
            kind: self._owed.get(kind, 0.0) + (window * WEIGHTS[kind] / whole if whole else 0.0)
            for kind in asking
        }
        given: dict[TurnKind, int] = dict.fromkeys(asking, 0)
        left = window
        for kind in sorted(asking, key=lambda kind: -owed[kind]):
            given[kind] = min(asking[kind], int(owed[kind]), left)
            left -= given[kind]
        for kind in sorted(asking, key=lambda kind: -WEIGHTS[kind]):
            more = min(asking[kind] - given[kind], left)
            given[kind] += more
            left -= more
        # Never more than a window is owed: a long wait must not become a long burst.
        self._owed = {
            kind: min(max(owed[kind] - given[kind], 0.0), float(window))
            for kind in asking
            if given[kind] < asking[kind]
        }
        return given


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


def _size(decoding: int) -> int:
    """Return the class of batch sizes that are measured together: powers of two."""
    return 1 << max(decoding - 1, 0).bit_length()


def _average(old: float | None, new: float) -> float:
    return new if old is None else (1 - WEIGHT) * old + WEIGHT * new
