"""Answers that are known already: greedy turns depend on nothing but what they are asked."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

import msgspec
from blake3 import blake3

from engine.api import Turn
from engine.kv.context import MediaSpan
from engine.prompt import Prompt

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class KnownAnswer:
    """What the model made of a prompt once."""

    tokens: tuple[int, ...]
    confidences: tuple[float, ...]
    finish: Finish

    @property
    def bytes(self) -> int:
        """What it takes of the cache's budget; a float and a pointer a token each."""
        return 64 + 48 * len(self.tokens)


class Answers:
    """Up to `limit_bytes`, the least recently used go first. Only the loop's thread calls it.

    It lives as long as one loaded model, so a key need not name that.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        # With the session that it was made for.
        self._known: OrderedDict[bytes, tuple[str, KnownAnswer]] = OrderedDict()
        self._used_bytes = 0
        self._hits = 0
        self._misses = 0

    def find(self, turn: Turn, prompt: Prompt) -> KnownAnswer | None:
        """Return the answer that a turn would get, if it is known."""
        if not self._is_kept(turn):
            return None
        key = _key(turn, prompt)
        if key not in self._known:
            self._misses += 1
            return None
        self._hits += 1
        self._known.move_to_end(key)
        return self._known[key][1]

    def keep(self, turn: Turn, prompt: Prompt, answer: KnownAnswer) -> None:
        """Remember an answer that came to its end."""
        if not self._is_kept(turn) or answer.bytes > self._limit_bytes:
            return
        key = _key(turn, prompt)
        self._drop(key)
        self._known[key] = turn.session, answer
        self._used_bytes += answer.bytes
        while self._used_bytes > self._limit_bytes:
            self._drop(next(iter(self._known)))

    def forget(self, session: str) -> None:
        """Drop what was made for the sessions of a name."""
        for key in [key for key, (maker, _) in self._known.items() if maker == session]:
            self._drop(key)

    def gauges(self) -> dict[str, float]:
        """Return what is held now; may be asked from any thread."""
        return {"answer_cache_bytes": float(self._used_bytes)}

    def counters(self) -> dict[str, float]:
        """Return what happened since the start; may be asked from any thread."""
        found = {"answer_cache_hits": self._hits, "answer_cache_misses": self._misses}
        return {name: float(count) for name, count in found.items()}

    def _drop(self, key: bytes) -> None:
        if key in self._known:
            self._used_bytes -= self._known.pop(key)[1].bytes

    def _is_kept(self, turn: Turn) -> bool:
        return turn.temperature <= 0 and self._limit_bytes > 0


def _key(turn: Turn, prompt: Prompt) -> bytes:
    """Name all that a greedy answer depends on, with the tenant: nothing is shared across them."""
    spans = [placed.span for placed in prompt.placed]
    settings = (
        turn.tenant,
        turn.max_new_tokens,
        turn.stop,
        turn.stop_tokens,
        turn.json_schema,
        turn.repetition_penalty,
        turn.presence_penalty,
        turn.frequency_penalty,
        [_named(span) for span in spans],
        array("I", prompt.tokens).tobytes(),
    )
    return blake3(msgspec.msgpack.encode(settings)).digest()


def _named(span: MediaSpan) -> tuple[bytes, int, int]:
    return span.digest, span.start, span.length
