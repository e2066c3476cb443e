"""One WebSocket: a reader that waits for nobody else, one writer, a clock, and an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.abc
import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from protocol import codec
from protocol.base import SUBPROTOCOL, ServerMessage
from protocol.errors import CloseCode, ErrorCode
from protocol.messages import Error, Goaway, Heartbeat
from protocol.session import ServerSession
from server.house import House
from server.outbox import Outbox
from server.session import Participant
from server.transport import EXTENSION, Progress

log = structlog.get_logger(__name__)

TICK_S = 0.25
MISSED_HEARTBEATS = 3
# uvicorn waits this long for the client's half of a close; past it the socket is dropped.
CLOSE_GRACE_S = 5.0


class Connection:
    """Moves frames between a socket, its session and its outbox; decides nothing else."""

    def __init__(self, number: int, websocket: WebSocket, room: str, house: House) -> None:
        self.outbox = Outbox(house.settings.outbox_bytes)
        self._websocket = websocket
        self._house = house
        self._session = ServerSession(house.clock())
        self._participant = Participant(number, room, self, house, self._session)
        self._progress = Progress(websocket.scope["extensions"].get(EXTENSION))
        self._wakeup = asyncio.Event()
        self._close_code: CloseCode | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._log = log.bind(connection=number, room=room)

    async def run(self) -> None:
        """Serve the socket until it ends; nothing of it outlives this call."""
        await self._websocket.accept(subprotocol=self._subprotocol())
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._write_until_closed)
                tasks.start_soon(self._watch_the_clock)
                await self._read_until_closed()
                tasks.cancel_scope.cancel()
        except* WebSocketDisconnect:
            pass
        except* Exception:
            # The border of a connection: a fault of ours ends this one and no other.
            self._log.exception("connection failed")
        finally:
            self._participant.leave()
            await self._part()

    async def _read_until_closed(self) -> None:
        while (frame := await self._next_frame()) is not None:
            now = self._house.clock()
            if isinstance(frame, str):
                for message in self._session.receive_text(frame, now):
                    self._participant.handle(message)
                if pause_s := self._participant.pause_s(len(frame), now):
                    await asyncio.sleep(pause_s)
            else:
                for chunk in self._session.receive_binary(frame, now):
                    self._participant.handle(chunk)

    async def _next_frame(self) -> str | bytes | None:
        # Starlette's receive_text raises KeyError on a binary frame, so it is not used.
        message = await self._websocket.receive()
        while self._close_code is not None and message["type"] == "websocket.receive":
            message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        return text if text is not None else message["bytes"]

    async def _write_until_closed(self) -> None:
        while True:
            self.outbox.measure(self._progress.buffered_bytes)
            frame = self.outbox.take(self._house.clock())
            if frame is not None:
                await self._send(frame)
            elif self._close_code is not None:
                await self._websocket.close(self._close_code)
                return
            else:
                self._wakeup.clear()
                await self._wakeup.wait()

    async def _send(self, frame: bytes) -> None:
        self._progress.sending(self._house.clock())
        await self._websocket.send({"type": "websocket.send", "text": frame.decode()})
        self._progress.sent()
        self.outbox.sent()
        if (place := self._participant.place) is not None:
            place.feed.drained()

    async def _watch_the_clock(self) -> None:
        settings, clock = self._house.settings, self._house.clock
        opened_at = heartbeat_at = clock()
        while True:
            await asyncio.sleep(min(TICK_S, settings.heartbeat_s))
            now = clock()
            if self._progress.stuck_s(now) > settings.send_deadline_s:
                self._log.info("client took nothing", deadline_s=settings.send_deadline_s)
                self._progress.abort()
            elif self._session.silent_s(now) > (MISSED_HEARTBEATS + 0.5) * settings.heartbeat_s:
                self._end(ErrorCode.TOO_SLOW, "no heartbeat was answered", CloseCode.TOO_SLOW)
            elif self.outbox.is_overrun:
                self._end(ErrorCode.TOO_SLOW, "answers are not read", CloseCode.TOO_SLOW)
            elif not self._session.greeted and now - opened_at > settings.hello_timeout_s:
                self._end(ErrorCode.HELLO_TIMEOUT, "no hello came", CloseCode.UNAVAILABLE)
            self._participant.tick(self._house.wall())
            if now - heartbeat_at >= settings.heartbeat_s:
                heartbeat_at = now
                self._beat(now)

    def _beat(self, now: float) -> None:
        if (place := self._participant.place) is not None:
            is_ready = self._house.engine.is_ready
            self.send(Heartbeat(head=place.feed.head, t=now, engine_ready=is_ready))

    async def _part(self) -> None:
        """Send the close frame if that was not done, and make sure that the socket goes."""
        if self._websocket.application_state == WebSocketState.CONNECTED:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
                try:
                    await self._websocket.close(self._close_code or CloseCode.UNAVAILABLE)
                except (WebSocketDisconnect, RuntimeError):
                    pass  # it is gone already
        # transport.close() waits for a buffer that a wedged client never drains.
        asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self._progress.abort)

    def _subprotocol(self) -> str | None:
        offered = self._websocket.scope.get("subprotocols", [])
        return SUBPROTOCOL if SUBPROTOCOL in offered else None

    # -- what others ask of a connection --------------------------------------------------------

    @property
    def buffered_bytes(self) -> int:
        """What the transport holds that the client has not taken."""
        return self._progress.buffered_bytes

    def send(self, message: ServerMessage) -> None:
        """See `Line.send`."""
        if self._close_code is None:
            self.outbox.put_control(codec.encode(message))
            self.wake()

    def wake(self) -> None:
        """See `Line.wake`."""
        self._wakeup.set()

    def close(self, code: CloseCode) -> None:
        """See `Line.close`."""
        if self._close_code is None:
            self._close_code = code
            self.outbox.drop_events()
            self.wake()

    def start(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        """See `Line.start`."""
        assert self._tasks is not None, "started only while the socket is served"
        self._tasks.start_soon(work, *arguments)

    def replaced(self) -> None:
        """See `Seat.replaced`."""
        text = "a newer socket of this session took over"
        self._end(ErrorCode.REPLACED, text, CloseCode.REPLACED)

    def go_away(self, retry_after_s: float) -> None:
        """See `Seat.go_away`."""
        self.send(Goaway(retry_after=retry_after_s))

    def part(self) -> None:
        """See `Seat.part`."""
        if self._close_code is None:
            # Events that wait are still sent: what was said before the end is heard.
            self._close_code = CloseCode.DRAINING
            self.wake()

    def _end(self, code: ErrorCode, text: str, close_code: CloseCode) -> None:
        self.send(Error(code=code, message=text, fatal=True))
        self.close(close_code)
