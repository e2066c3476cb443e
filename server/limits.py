"""How often one connection may speak: token buckets, time passed in."""

from __future__ import annotations


class TokenBucket:
    """Lets `per_s` acts a second through, and `burst` at once."""

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float) -> float:
        """Take one token: 0 when there was one, else the seconds until there is."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_s


class ConnectionLimits:
    """The rates of one connection; presence has its own and is dropped without a word."""

    # A client that is refused this often without pause does not listen: it is closed.
    MAX_REFUSALS = 2_000

    def __init__(self, messages_per_s: float, burst: float, presence_per_s: float, now: float):
        self._messages = TokenBucket(messages_per_s, burst, now)
        self._presence = TokenBucket(presence_per_s, presence_per_s, now)
        self._refusals = 0

    def message(self, now: float) -> float:
        """Seconds to wait before the message may come again, 0 when it is taken."""
        wait_s = self._messages.take(now)
        self._refusals = self._refusals + 1 if wait_s else 0
        return wait_s

    def may_show_presence(self, now: float) -> bool:
        """Whether a presence message is taken."""
        return self._presence.take(now) == 0

    @property
    def is_hopeless(self) -> bool:
        """Whether the client goes on although it was told to wait."""
        return self._refusals > self.MAX_REFUSALS
