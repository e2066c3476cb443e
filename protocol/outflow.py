"""An upload as its sender sees it, without any I/O: what to say next, over reconnects.

asked ─ opened ─► flowing ─ all sent ─► closing ─ closed ─► ended
  ▲                  │                     │
  └── the socket was lost: ask again ──────┘   with the asset's id, from the server's offset
"""

from __future__ import annotations

from typing import Literal

from protocol.credit import Credit
from protocol.errors import ErrorCode
from protocol.media import MAX_PAYLOAD_BYTES, MediaFrame, MediaKind
from protocol.messages import (
    Error,
    StreamClose,
    StreamClosed,
    StreamCredit,
    StreamOpen,
    StreamOpened,
)

Kind = Literal["file", "camera", "microphone"]
_KINDS: dict[Kind, MediaKind] = {
    "file": MediaKind.FILE,
    "camera": MediaKind.CAMERA,
    "microphone": MediaKind.MICROPHONE,
}


class Outflow:
    """One upload of `size` bytes. `offset` is the first byte that was not sent yet.

    `asset` is known from the first `stream.opened` on; `received` counts the bytes that the
    server says it holds.
    """

    def __init__(
        self,
        size: int = 0,
        sha256: str | None = None,
        *,
        name: str = "",
        media_type: str = "",
        kind: Kind = "file",
        asks: bool = False,
        is_whole: bool = True,
    ) -> None:
        self.size = size
        self.sha256 = sha256
        self.name = name
        self.media_type = media_type
        self.kind: Kind = kind
        self.asks = asks
        # A recording under way has no size to tell; `size` grows until it is whole.
        self.is_whole = is_whole
        self._has_size = is_whole
        self.asset: str | None = None
        self.stream = 0
        self.offset = 0
        self.received = 0
        self.opened = False
        self.closing = False
        self.closed: StreamClosed | None = None
        self._credit = Credit()
        self._sequence = 0

    def ask(self, stream: int) -> StreamOpen:
        """Start on a fresh socket, or go on there; `stream` must be free on it."""
        self.stream = stream
        self.opened = self.closing = False
        self._credit = Credit()
        self._sequence = 0
        return StreamOpen(
            stream=stream,
            kind=self.kind,
            name=self.name,
            media_type=self.media_type,
            size=self.size if self._has_size else None,
            sha256=self.sha256,
            asset=self.asset,
            asks=self.asks,
        )

    def receive(self, message: StreamOpened | StreamCredit | StreamClosed | Error) -> None:
        """Take what the server says of this stream."""
        match message:
            case StreamOpened():
                self.opened = True
                self.asset = message.asset
                self.offset = self.received = message.offset
                self._credit.grant(message.credit)
            case StreamCredit():
                self._credit.grant(message.credit)
                self.received = max(self.received, message.received)
            case StreamClosed():
                self.closed = message
                if message.code is None:
                    self.received = self.size
            case Error():
                # Refused before it was open, so no `stream.closed` will come.
                self.closed = StreamClosed(
                    stream=self.stream, code=message.code, message=message.message
                )

    def sendable(self) -> int:
        """How many bytes the next frame may carry; 0 while there is no credit, or at the end."""
        if not self.opened or self.closed is not None:
            return 0
        return min(MAX_PAYLOAD_BYTES, self._credit.available, self.size - self.offset)

    def all_sent(self) -> bool:
        """Whether only `stream.close` is left to say."""
        return self.opened and self.is_whole and self.offset == self.size

    def frame(self, payload: bytes, *, pts_us: int = 0, flags: int = 0) -> MediaFrame:
        """Put the bytes at `offset` into a frame; raises `ValueError` beyond `sendable`."""
        if len(payload) > self.sendable():
            raise ValueError(f"{len(payload)} bytes are more than may be sent now")
        self._credit.spend(len(payload))
        kind = _KINDS[self.kind]
        frame = MediaFrame(self.stream, self._sequence, payload, kind, flags, pts_us)
        self._sequence += 1
        self.offset += len(payload)
        return frame

    def close(self) -> StreamClose:
        """Say that all bytes were sent."""
        self.closing = True
        return StreamClose(stream=self.stream)

    def has_news(self, received: int) -> bool:
        """Whether there is something to do or to tell since `received` bytes were held."""
        return (
            self.closed is not None
            or self.sendable() > 0
            or self.received != received
            or (self.all_sent() and not self.closing)
        )

    def is_unknown_there(self) -> bool:
        """Whether the server knows no upload of this asset: it is stored, or it is lost."""
        unknown = self.closed is not None and self.closed.code is ErrorCode.ASSET_UNKNOWN
        return unknown and self.asset is not None
