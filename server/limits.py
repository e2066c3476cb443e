"""How often one connection may speak: token buckets, time passed in."""

from __future__ import annotations

from protocol.base import MAX_TEXT_BYTES


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

    def charge(self, amount: float, now: float) -> float:
        """Take so much, on credit if need be: the seconds until the debt is paid."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s) - amount
        self._at = now
        return max(0.0, -self._tokens / self._per_s)


class ConnectionLimits:
    """The rates of one connection; presence has its own and is dropped without a word."""

    # A client that is refused this often without pause does not listen: it is closed.
    MAX_REFUSALS = 2_000
    # What a message may have on average. Reading JSON takes the loop 150 ms for each MiB.
    MEAN_BYTES = 4_096
    # Longer than this a reader does not pause at once: heartbeats want to be heard.
    LONGEST_PAUSE_S = 1.0

    def __init__(self, messages_per_s: float, burst: float, presence_per_s: float, now: float):
        self._messages = TokenBucket(messages_per_s, burst, now)
        self._presence = TokenBucket(presence_per_s, presence_per_s, now)
        burst_bytes = max(burst * self.MEAN_BYTES, MAX_TEXT_BYTES)
        self._bytes = TokenBucket(messages_per_s * self.MEAN_BYTES, burst_bytes, now)
        self._refusals = 0

    def pause_s(self, size: int, now: float) -> float:
        """How long to read nothing after a text frame of so many bytes."""
        return min(self._bytes.charge(size, now), self.LONGEST_PAUSE_S)

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
