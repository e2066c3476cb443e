"""The sockets under the server: what ASGI does not show, and an end to what a peer may hold."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

EXTENSION = "consilium.transport"

# A page's request has some hundred bytes and comes in one packet; a token may stand in it.
MAX_HEAD_BYTES = 64 * 1024
HEAD_LIMIT_S = 10.0
# A peer that takes nothing of an answer for so long does not want it. The kernel asks for more
# only when a third of its own buffer, up to 4 MB, is free: 22 kB/s are enough.
TAKE_LIMIT_S = 60.0


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with the limits that it has not: on a head, and on a peer that stalls.

    Without them one request held all the memory it liked, and sockets that said half a word, or
    read nothing of their answer, stayed for ever.
    """

    _head_bytes: int | None = 0
    _waiting_for_head: asyncio.TimerHandle | None = None
    _waiting_for_peer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See the base class."""
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See the base class."""
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See the base class."""
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """See the base class."""
        super().on_message_begin()
        if self._head_bytes is None:
            self._begin_head()

    def on_headers_complete(self) -> None:
        """See the base class."""
        self._end_head()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """See the base class."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_peer()

    def send_400_response(self, msg: str) -> None:
        """See the base class."""
        if not self.transport.is_closing():
            super().send_400_response(msg)
            self._watch_peer()

    def timeout_keep_alive_handler(self) -> None:
        """See the base class."""
        super().timeout_keep_alive_handler()
        self._watch_peer()

    def pause_writing(self) -> None:
        """See the base class."""
        super().pause_writing()
        self._watch_peer()

    def resume_writing(self) -> None:
        """See the base class."""
        super().resume_writing()
        # What is held now is compared with nothing that was held before.
        if self._waiting_for_peer is not None and not self.transport.is_closing():
            self._waiting_for_peer.cancel()
            self._waiting_for_peer = None

    def _begin_head(self) -> None:
        self._head_bytes = 0
        self._waiting_for_head = self.loop.call_later(HEAD_LIMIT_S, self.transport.abort)

    def _end_head(self) -> None:
        self._head_bytes = None
        if self._waiting_for_head is not None:
            self._waiting_for_head.cancel()
            self._waiting_for_head = None

    def _watch_peer(self) -> None:
        if self._waiting_for_peer is None:
            self._look_later()

    def _look_later(self) -> None:
        held = self.transport.get_write_buffer_size()
        self._waiting_for_peer = self.loop.call_later(TAKE_LIMIT_S, self._look, held)

    def _look(self, held: int) -> None:
        """Drop the connection when the peer took nothing of what the transport `held`."""
        self._waiting_for_peer = None
        is_wanted = self.flow.write_paused or self.transport.is_closing()
        if is_wanted and self.transport.get_write_buffer_size() >= held:
            self.transport.abort()
        elif is_wanted:
            self._look_later()

    def _stop_timers(self) -> None:
        for timer in (self._waiting_for_head, self._waiting_for_peer):
            if timer is not None:
                timer.cancel()


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
