"""The RAM tier: records of sessions that are not live, and the bytes that all of it may take."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict

from engine.kv.blocks import Record


class Ram:
    """Records up to `limit_bytes`, the least recently used go first. Safe from any thread.

    Bytes are reserved before they are allocated. A pinned record stays until nobody waits for it;
    then a reservation may be refused, and whoever asked goes on without.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.evictions = 0
        self._lock = threading.Lock()
        # Insertion order is the order of last use.
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._pins: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def keys(self) -> list[str]:
        """Return whose records are here, the least recently used first."""
        with self._lock:
            return list(self._records)

    def reserve(self, size_bytes: int) -> bool:
        """Take bytes from the budget, dropping old records; False leaves everything as it was."""
        with self._lock:
            free = self.limit_bytes - self.used_bytes
            going: list[str] = []
            for key, record in self._records.items():
                if free >= size_bytes:
                    break
                if not self._pins[key]:
                    going.append(key)
                    free += record.bytes
            if free < size_bytes:
                return False
            for key in going:
                self.used_bytes -= self._records.pop(key).bytes
                self.evictions += 1
            self.used_bytes += size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        """Give reserved bytes back."""
        with self._lock:
            self.used_bytes -= size_bytes

    def put(self, key: str, record: Record) -> None:
        """Keep a record whose bytes were reserved, in place of an older one."""
        with self._lock:
            if (old := self._records.pop(key, None)) is not None:
                self.used_bytes -= old.bytes
            self._records[key] = record

    def get(self, key: str) -> Record | None:
        """Return a record and make it the last to go."""
        with self._lock:
            if key in self._records:
                self._records.move_to_end(key)
            return self._records.get(key)

    def drop(self, key: str) -> None:
        """Let a record go; one that is not here is no mistake."""
        with self._lock:
            if (record := self._records.pop(key, None)) is not None:
                self.used_bytes -= record.bytes

    def pin(self, key: str) -> None:
        """Keep the session's record, here or to come, until `unpin` was called as often."""
        with self._lock:
            self._pins[key] += 1

    def unpin(self, key: str) -> None:
        """Undo one `pin`."""
        with self._lock:
            self._pins[key] -= 1
            if self._pins[key] <= 0:
                del self._pins[key]

    def check_integrity(self) -> None:
        """Raise `AssertionError` unless, with nobody at work, every byte has its owner."""
        with self._lock:
            held = sum(record.bytes for record in self._records.values())
            assert held == self.used_bytes, f"{self.used_bytes} bytes counted, {held} held"
            assert not self._pins, f"pinned by nobody: {sorted(self._pins)}"
            assert held <= self.limit_bytes, f"{held} bytes of {self.limit_bytes}"
