"""The upload streams of one connection: which stream sends which asset's bytes."""

from __future__ import annotations

from typing import Protocol

from protocol.base import ServerMessage
from protocol.errors import ErrorCode, StreamError
from protocol.media import MediaFrame
from protocol.messages import (
    Error,
    StreamAbort,
    StreamClose,
    StreamClosed,
    StreamCredit,
    StreamOpen,
    StreamOpened,
)
from protocol.session import ServerSession
from protocol.shapes import Actor
from server.background import Background
from server.hub import Hosted
from server.ingest import Coming, Ingest
from server.upload import Refused

# A client that overdrew has chunks under way; it is told once per stream, not once per chunk.
MAX_TOLD = 256


class Line(Protocol):
    """Where answers go; `send` never blocks."""

    def send(self, message: ServerMessage) -> None:
        """Queue a message for the client."""
        ...


class _Stream:
    """One stream, from `stream.open` on; an `UploadPeer` once its upload is known."""

    def __init__(self, number: int, owner: Streams) -> None:
        self.number = number
        self.upload: Coming | None = None
        self.is_finished = False
        self.is_given_up = False
        self._owner = owner

    def begin(self, upload: Coming) -> None:
        """Send this upload's bytes from now on."""
        if upload.peer is not None:
            upload.peer.taken_over()
        upload.peer = self
        self.upload = upload
        if self.is_finished:
            upload.finish()
        if self.is_given_up:
            upload.give_up()

    def granted(self, received: int, credit: int) -> None:
        """See `UploadPeer.granted`."""
        self._owner.grant(self, received, credit)

    def ended(self, sha256: str | None, code: ErrorCode | None, message: str) -> None:
        """See `UploadPeer.ended`."""
        self._owner.end(self, sha256, code, message)

    def taken_over(self) -> None:
        """See `UploadPeer.taken_over`."""
        self._owner.end(self, None, ErrorCode.REPLACED, "another connection sends the rest")

    def let_go(self) -> None:
        """Leave the upload to whoever goes on with it."""
        if self.upload is not None and self.upload.peer is self:
            self.upload.peer = None


class Streams:
    """Answers everything that one connection says about its streams."""

    def __init__(
        self,
        ingest: Ingest,
        hosted: Hosted,
        by: Actor,
        line: Line,
        session: ServerSession,
        background: Background,
    ) -> None:
        self._ingest = ingest
        self._hosted = hosted
        self._by = by
        self._line = line
        self._session = session
        self._background = background
        self._streams: dict[int, _Stream] = {}
        self._told: set[int] = set()

    def open(self, message: StreamOpen) -> None:
        """Begin a stream; it is answered when its upload is ready."""
        try:
            is_live = message.kind != "file"
            limit = self._ingest.max_streams
            self._session.open_stream(message.stream, 0, limit, is_live=is_live)
        except StreamError as error:
            self._line.send(_error(error))
            return
        self._told.discard(message.stream)
        stream = _Stream(message.stream, self)
        self._streams[message.stream] = stream
        self._background.spawn(self._open(stream, message), f"stream {message.stream}")

    async def _open(self, stream: _Stream, message: StreamOpen) -> None:
        try:
            upload = await self._ingest.open(self._hosted, self._by, message)
        except Refused as refusal:
            self.end(stream, None, refusal.code, refusal.message)
            return
        except OSError as error:
            text = f"the disk does not take it: {error.strerror}"
            self.end(stream, None, ErrorCode.UNAVAILABLE, text)
            return
        credit = self._ingest.credit_bytes
        opened = StreamOpened(
            stream=stream.number,
            asset=upload.claim.asset,
            offset=upload.accepted,
            credit=credit,
        )
        stream.begin(upload)
        if self._streams.get(stream.number) is not stream:
            # The connection ended meanwhile.
            stream.let_go()
            return
        self._session.grant(stream.number, credit)
        self._line.send(opened)

    def chunk(self, frame: MediaFrame) -> None:
        """Take bytes that the session found to be within their credit."""
        stream = self._streams.get(frame.stream)
        if stream is not None and stream.is_finished:
            text = f"stream {frame.stream}: bytes after its close"
            self._line.send(_error(StreamError(text, ref=str(frame.stream))))
        elif stream is not None and stream.upload is not None:
            stream.upload.take_chunk(frame)

    def close(self, message: StreamClose) -> None:
        """Take that all bytes of a stream were sent."""
        if (stream := self._known(message.stream)) is not None:
            stream.is_finished = True
            if stream.upload is not None:
                stream.upload.finish()

    def abort(self, message: StreamAbort) -> None:
        """Take that an upload is given up."""
        if (stream := self._known(message.stream)) is not None:
            stream.is_given_up = True
            if stream.upload is not None:
                stream.upload.give_up()

    def broken(self, error: StreamError) -> None:
        """End the stream that a chunk broke; its upload may be gone on with."""
        number = int(error.ref or 0)
        if (stream := self._streams.get(number)) is not None:
            self._told.add(number)
            self.end(stream, None, error.code, error.message)
        elif number not in self._told:
            if len(self._told) >= MAX_TOLD:
                self._told.clear()
            self._told.add(number)
            self._line.send(_error(error))

    def detach(self) -> None:
        """The connection ends: uploads wait for whoever goes on with them."""
        for stream in self._streams.values():
            stream.let_go()
        self._streams.clear()

    def grant(self, stream: _Stream, received: int, credit: int) -> None:
        """Let more bytes of a stream come."""
        self._session.grant(stream.number, credit)
        self._line.send(StreamCredit(stream=stream.number, credit=credit, received=received))

    def end(
        self, stream: _Stream, sha256: str | None, code: ErrorCode | None, message: str
    ) -> None:
        """Close a stream and say why."""
        if self._streams.get(stream.number) is not stream:
            return
        del self._streams[stream.number]
        self._session.end_stream(stream.number)
        stream.let_go()
        asset = stream.upload.claim.asset if stream.upload is not None else None
        closed = StreamClosed(
            stream=stream.number, asset=asset, sha256=sha256, code=code, message=message
        )
        self._line.send(closed)

    def _known(self, number: int) -> _Stream | None:
        stream = self._streams.get(number)
        if stream is None:
            error = StreamError(f"stream {number} is not open", ref=str(number))
            self._line.send(_error(error))
        return stream


def _error(error: StreamError) -> Error:
    return Error(code=error.code, message=error.message, ref=error.ref)
