"""Both sides of a connection without any I/O: frames and time come in, decisions come out.

    server   hello ─► open ─► closed          client   hello sent ─► open ─► closed

The server side says what a frame means and whether it may be said now; the client side keeps
what must survive a reconnect: the position in the room and everything that was not acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.base import MAX_TEXT_BYTES, ClientMessage, ServerMessage
from protocol.codec import decode_client, decode_server
from protocol.credit import Credit
from protocol.errors import (
    BadMessage,
    CloseCode,
    ErrorCode,
    OutOfTurn,
    ProtocolError,
    StreamError,
    may_reconnect,
)
from protocol.events import Event
from protocol.media import HEADER_BYTES, MAX_PAYLOAD_BYTES, MediaFrame
from protocol.messages import Ack, Ask, Error, Goaway, Heartbeat, Hello, Nack, Op, Position, Welcome
from protocol.room import EventGap, RoomState, apply

Incoming = ClientMessage | ProtocolError


@dataclass(slots=True)
class _Inflow:
    """What the server knows of one open upload stream."""

    credit: Credit = field(default_factory=Credit)
    next_sequence: int = 0
    is_live: bool = False


class ServerSession:
    """The server's side of one connection. `now` is any monotonic clock in seconds."""

    def __init__(self, now: float) -> None:
        self._greeted = False
        self._heard_at = now
        self._streams: dict[int, _Inflow] = {}

    def receive_text(self, frame: bytes | str, now: float) -> list[Incoming]:
        """Say what a text frame means: messages and mistakes in the order they came."""
        self._heard_at = now
        size = len(frame) if isinstance(frame, bytes) else len(frame.encode("utf-8", "replace"))
        if size > MAX_TEXT_BYTES:
            message = f"text message of {size} bytes; {MAX_TEXT_BYTES} are the limit"
            return self._in_turn([BadMessage(message, code=ErrorCode.TOO_BIG)])
        return self._in_turn(list(decode_client(frame)))

    def receive_binary(self, frame: bytes, now: float) -> list[MediaFrame | ProtocolError]:
        """Say what a binary frame means: one chunk of an open stream, or a mistake.

        A chunk that overdraws its credit or leaves a gap ends its stream here; the caller
        answers and lets go of the upload. Of a live stream a gap is told and the chunk taken, as
        what is missing cannot be sent again; one that came before changes nothing.
        """
        self._heard_at = now
        if not self._greeted:
            return [OutOfTurn("a media frame before `hello`")]
        if len(frame) > HEADER_BYTES + MAX_PAYLOAD_BYTES:
            return [BadMessage("binary frame over 64 KiB", code=ErrorCode.BAD_FRAME)]
        try:
            chunk = MediaFrame.parse(frame)
        except BadMessage as error:
            return [error]
        inflow = self._streams.get(chunk.stream)
        if inflow is None:
            return [StreamError(f"stream {chunk.stream} is not open", ref=str(chunk.stream))]
        missing = chunk.sequence - inflow.next_sequence
        if missing < 0 and inflow.is_live:
            return []
        if missing and not inflow.is_live:
            return [self._ended(chunk.stream, "a chunk is missing", ErrorCode.STREAM_GAP)]
        if not inflow.credit.spend(len(chunk.payload)):
            return [self._ended(chunk.stream, "beyond the credit", ErrorCode.STREAM_OVERDRAWN)]
        inflow.next_sequence = chunk.sequence + 1
        if missing:
            text = f"stream {chunk.stream}: {missing} chunks before {chunk.pts_us / 1e6:.2f} s"
            gap = ProtocolError(
                f"{text} are missing", code=ErrorCode.STREAM_GAP, ref=str(chunk.stream)
            )
            return [gap, chunk]
        return [chunk]

    def open_stream(
        self, stream: int, credit: int, max_streams: int, *, is_live: bool = False
    ) -> None:
        """Let chunks of a stream in; raises `StreamError` when that may not be."""
        if stream in self._streams:
            raise StreamError(
                f"stream {stream} is open", code=ErrorCode.STREAM_EXISTS, ref=str(stream)
            )
        if len(self._streams) >= max_streams:
            raise StreamError(
                f"{max_streams} streams are open", code=ErrorCode.STREAM_LIMIT, ref=str(stream)
            )
        self._streams[stream] = _Inflow(Credit(credit), is_live=is_live)

    def grant(self, stream: int, credit: int) -> None:
        """Add credit to an open stream; nothing happens when it ended meanwhile."""
        if (inflow := self._streams.get(stream)) is not None:
            inflow.credit.grant(credit)

    def end_stream(self, stream: int) -> None:
        """Let no more chunks of a stream in."""
        self._streams.pop(stream, None)

    def silent_s(self, now: float) -> float:
        """How long nothing came from the client, in seconds."""
        return now - self._heard_at

    @property
    def greeted(self) -> bool:
        """Whether `hello` came."""
        return self._greeted

    def _ended(self, stream: int, message: str, code: ErrorCode) -> StreamError:
        self.end_stream(stream)
        return StreamError(f"stream {stream}: {message}", code=code, ref=str(stream))

    def _in_turn(self, incoming: list[Incoming]) -> list[Incoming]:
        """Cut at the first message that may not be said now: `hello` first, and once."""
        for index, message in enumerate(incoming):
            is_hello = isinstance(message, Hello)
            if is_hello and not self._greeted:
                self._greeted = True
            elif is_hello:
                return [*incoming[:index], OutOfTurn("`hello` again")]
            elif not self._greeted:
                # What is wrong with a `hello` that cannot be read helps more than that it is.
                said = (message,) if isinstance(message, ProtocolError) else ()
                return [*incoming[:index], *said, OutOfTurn("the first message was not `hello`")]
        return incoming


@dataclass(frozen=True, slots=True)
class Resync:
    """The client's state is not whole: close the socket and come back with `resume`."""

    reason: str


class ClientSession:
    """The client's side, over all its connections: state, position and outbox.

    Everything handed to `remember` is sent again after each `welcome` until its answer comes;
    the server drops what it has already numbered, so nothing is lost and nothing doubled.
    """

    def __init__(self, hello: Hello, max_pending: int = 1_000) -> None:
        self._hello = hello
        self._max_pending = max_pending
        self._pending: dict[str, Op | Ask] = {}
        self._stood_at: int | None = None
        self.state = RoomState()
        self.welcome: Welcome | None = None
        self.retry_after_s: float | None = None

    def hello(self, token: str | None = None) -> Hello:
        """Make the first message of the next connection, with the position reached so far."""
        self.retry_after_s = None
        resume = None
        if self.welcome is not None:
            resume = Position(epoch=self.state.epoch, seq=self.state.seq)
        old = self._hello
        return Hello(
            session=old.session,
            client=old.client,
            token=token if token is not None else old.token,
            name=old.name,
            department=old.department,
            resume=resume,
        )

    def remember(self, message: Op | Ask) -> None:
        """Keep an op or a question until it is answered; raises `OverflowError` when full."""
        if len(self._pending) >= self._max_pending:
            raise OverflowError(f"{self._max_pending} acts wait for their answer")
        self._pending[_act_id(message)] = message

    def pending(self) -> list[Op | Ask]:
        """What was not answered yet, oldest first."""
        return list(self._pending.values())

    def receive(self, frame: bytes | str) -> list[ServerMessage | Resync]:
        """Fold a text frame into the state and return its messages, new ones only.

        An event that was seen before is left out. `Resync` stands where events are missing.
        """
        fresh: list[ServerMessage | Resync] = []
        for message in decode_server(frame):
            match message:
                case Event():
                    try:
                        if not apply(self.state, message):
                            continue
                    except EventGap as gap:
                        return [*fresh, Resync(str(gap))]
                case Welcome():
                    self._welcomed(message)
                case Ack() | Nack():
                    self._pending.pop(message.op_id, None)
                case Heartbeat():
                    if self._lost_silently(message.head):
                        return [*fresh, Resync("events that a heartbeat announced did not come")]
                case Goaway() | Error():
                    self.retry_after_s = message.retry_after
                case _:
                    pass
            fresh.append(message)
        return fresh

    def closed(self, code: int) -> bool:
        """Whether to come back after a close with this code (1006 for a cut connection)."""
        return may_reconnect(code) or code == CloseCode.NORMAL

    def _lost_silently(self, head: int) -> bool:
        # Control messages overtake events, and a slow line may be heartbeats behind: only when
        # a heartbeat announced events and none at all came until the next one are they lost.
        lost = self._stood_at == self.state.seq
        self._stood_at = self.state.seq if head > self.state.seq else None
        return lost

    def _welcomed(self, welcome: Welcome) -> None:
        self.welcome = welcome
        self._stood_at = None
        if welcome.snapshot is not None:
            self.state = RoomState.from_snapshot(welcome.snapshot)
        elif not self.state.epoch:
            self.state = RoomState(welcome.epoch)


def _act_id(message: Op | Ask) -> str:
    return message.op_id if isinstance(message, Op) else message.turn
