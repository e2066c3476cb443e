"""Whether a session is brought back from disk or computed again: by what both took lately."""

from __future__ import annotations

# How much the newest measurement counts; a neighbour's burst of I/O shall not decide alone.
WEIGHT = 0.25
# Reads shorter than this measure the file system's latency, not the disk's bandwidth.
MIN_READ_BYTES = 256 * 1024
# When computing seems cheaper, one in so many is read all the same: disks become fast again.
RETRY_EVERY = 16


class Costs:
    """Running averages of reading and computing. Without a measurement reading is believed in."""

    def __init__(self) -> None:
        self.read_bytes_per_s = 0.0
        self.tokens_per_s = 0.0
        self._declined = 0

    def note_read(self, size_bytes: int, seconds: float) -> None:
        """Tell what reading and checking so much took."""
        if size_bytes >= MIN_READ_BYTES and seconds > 0:
            self.read_bytes_per_s = _average(self.read_bytes_per_s, size_bytes / seconds)

    def note_computed(self, tokens: int, seconds: float) -> None:
        """Tell what a step of nothing but prompt tokens took."""
        if tokens > 0 and seconds > 0:
            self.tokens_per_s = _average(self.tokens_per_s, tokens / seconds)

    def should_read(self, size_bytes: int, tokens: int) -> bool:
        """Whether reading so many bytes is expected to be faster than computing `tokens`."""
        if not self.read_bytes_per_s or not self.tokens_per_s:
            return True
        if size_bytes / self.read_bytes_per_s <= tokens / self.tokens_per_s:
            return True
        self._declined += 1
        return self._declined % RETRY_EVERY == 0


def _average(old: float, new: float) -> float:
    return new if not old else (1 - WEIGHT) * old + WEIGHT * new
