"""Byte credit of one upload stream: how much the sender may still send, as in HTTP/2."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Credit:
    """What may still be sent, in bytes. The receiver grants, the sender spends."""

    available: int = 0

    def grant(self, size: int) -> None:
        """Allow `size` more bytes; raises `ValueError` when negative."""
        if size < 0:
            raise ValueError("credit is only ever added")
        self.available += size

    def spend(self, size: int) -> bool:
        """Take `size` bytes off; False, and nothing is taken, when that overdraws."""
        if size > self.available:
            return False
        self.available -= size
        return True
