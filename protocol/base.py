"""The bases of every message, and the limits of the protocol itself."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

SUBPROTOCOL = "consilium.v1"
MAX_TEXT_BYTES = 256 * 1024
MAX_FRAME_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 64
HELLO_TIMEOUT_S = 10.0

Lane = Literal["control", "ordered", "lossy"]


class ClientMessage(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
):
    """Base of what a participant sends."""


class ServerMessage(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"
):
    """Base of what the server sends."""

    lane: ClassVar[Lane] = "control"

    def coalesce_key(self) -> str | None:
        """Name what a newer message of the lossy lane replaces; `None` replaces nothing."""
        return None
