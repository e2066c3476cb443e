"""What names a block of KV: a chain over everything that made it. Pure, and alike for all tiers."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass

from blake3 import blake3

from engine.kv.blocks import BLOCK
from engine.kv.context import KVShape, MediaSpan

# Raised whenever a stored block would be read differently; files of another one are misses.
FORMAT = 1
KEY_BYTES = 16


@dataclass(frozen=True)
class Identity:
    """Whose bits they are: the weights with all that computes on them, and the layout.

    `model` is a digest of full width (`engine.models.fingerprint`).
    """

    model: bytes
    shape: KVShape

    def encoded(self) -> bytes:
        """Return it as bytes that are equal only for blocks that may stand for each other."""
        shape = self.shape
        groups = " ".join(f"{each.layers} {each.heads} {each.head_dim}" for each in shape.groups)
        layout = f"{FORMAT} {sys.byteorder} {shape.dtype} {groups}"
        # Named only where there is one: files of other models stay what they are.
        state = f" {shape.state.encoded()}" if shape.state is not None else ""
        return f"{layout} {BLOCK} {self.model.hex()}{state}".encode()


def chain(
    identity: Identity, tenant: str, tokens: list[int], spans: tuple[MediaSpan, ...]
) -> list[bytes]:
    """Return the key of each block of `tokens`; each covers all that stands before it, too."""
    key = _digest(identity.encoded(), tenant.encode())
    keys = []
    for start in range(0, len(tokens), BLOCK):
        part = tokens[start : start + BLOCK]
        stop = start + len(part)
        media = [
            struct.pack("<QQ", span.start, span.length) + span.digest
            for span in spans
            if span.start < stop and span.start + span.length > start
        ]
        key = _digest(key, struct.pack(f"<{len(part)}I", *part), *media)
        keys.append(key)
    return keys


def _digest(*parts: bytes) -> bytes:
    whole = blake3()
    for part in parts:
        # With its length in front no part can be read as the end of the one before it.
        whole.update(struct.pack("<Q", len(part)))
        whole.update(part)
    return whole.digest(length=KEY_BYTES)
