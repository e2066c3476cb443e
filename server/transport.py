"""The socket under a WebSocket: what ASGI does not show, and what the writer's deadline needs."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

EXTENSION = "consilium.transport"


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's protocol, with its transport in the scope's extensions."""

    def handle_connect(self, event: Any) -> None:
        """See the base class."""
        super().handle_connect(event)
        if not self.close_sent:
            extensions: dict[str, Any] = cast(Any, self.scope["extensions"])
            extensions[EXTENSION] = self.transport


class Progress:
    """Notices a peer that takes nothing: no send ends and the transport's buffer never shrinks."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        self._transport = transport
        self._least_bytes = 0
        self._since: float | None = None

    @property
    def buffered_bytes(self) -> int:
        """What the peer has not taken yet."""
        if self._transport is None or self._transport.is_closing():
            return 0
        return self._transport.get_write_buffer_size()

    def sending(self, now: float) -> None:
        """A frame is handed to the transport."""
        self._since = now
        self._least_bytes = self.buffered_bytes

    def sent(self) -> None:
        """The transport took the frame."""
        self._since = None

    def stuck_s(self, now: float) -> float:
        """For how long the peer has taken nothing, in seconds."""
        if self._since is None:
            return 0.0
        buffered = self.buffered_bytes
        if buffered < self._least_bytes:
            self._least_bytes, self._since = buffered, now
        return now - self._since

    def abort(self) -> None:
        """Drop the connection and everything in its buffer, now."""
        if self._transport is not None:
            self._transport.abort()
