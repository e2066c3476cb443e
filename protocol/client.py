"""The asyncio client: a room that stays joined over lost connections.

The only module of this package with I/O; what a frame means is decided below it. One task reads
the socket and waits for nothing else; a second one writes what may not delay it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import secrets
import ssl as tls
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakSet

import httpx
from websockets.asyncio import client as ws
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State
from websockets.typing import Subprotocol

from protocol import consultation, joining
from protocol import messages as ms
from protocol.base import HELLO_TIMEOUT_S, SUBPROTOCOL, ClientMessage, ServerMessage
from protocol.codec import encode
from protocol.consultation import Consultation, Token
from protocol.errors import BadMessage, CloseCode, ErrorCode
from protocol.joining import Disconnected, Refused
from protocol.outflow import Outflow
from protocol.session import ClientSession, Resync
from protocol.surroundings import Reader, Surroundings
from protocol.uploading import GreetedSocket, Progress, SocketLost, Uploads

CLIENT_NAME = "consilium-python/0.1"
# A welcome carries the snapshot of a whole room.
MAX_WELCOME_BYTES = 64 * 1024 * 1024
MISSED_HEARTBEATS = 3
PRESENCE_PAUSE_S = 0.05

logger = logging.getLogger(__name__)


def connect(
    url: str,
    *,
    name: str = "",
    department: str = "",
    token: Token = None,
    room: str | None = None,
    session: str | None = None,
    ssl: tls.SSLContext | None = None,
    open_timeout_s: float = 10.0,
) -> SocketLink:
    """Join a room: `await` it, or use it in `async with`, which leaves at the end.

    `token` may be a coroutine function, asked before each connection. `session` continues one
    of before; never share it between two that run. Passing faults are tried again until
    `open_timeout_s`; raises `Disconnected` when the room cannot be joined, and `ValueError` for
    an address that is none.
    """
    hello = ms.Hello(
        session=session if session is not None else secrets.token_urlsafe(24),
        client=CLIENT_NAME,
        name=name,
        department=department,
    )
    return SocketLink(joining.socket_url(url, room), hello, token, ssl, open_timeout_s)


class SocketLink:
    """The `Link` over WebSockets: one at a time, replaced when it is lost."""

    def __init__(
        self,
        url: str,
        hello: ms.Hello,
        token: Token,
        ssl: tls.SSLContext | None,
        open_timeout_s: float,
    ) -> None:
        self.session = ClientSession(hello)
        self.surroundings = Surroundings()
        self.token = token
        self._url = url
        self._ssl = ssl
        self._open_timeout_s = open_timeout_s
        self._socket: ws.ClientConnection | None = None
        self._runner: asyncio.Task[None] | None = None
        self._ended: Disconnected | None = None
        self._fault = "nothing was tried"
        self._fatal: ms.Error | None = None
        self._changed = asyncio.Event()
        self._answers: dict[str, asyncio.Future[int]] = {}
        self.uploads = Uploads()
        self._upload_slots: asyncio.Semaphore | None = None
        self._readers: WeakSet[Reader] = WeakSet()
        self._presence: ms.Presence | None = None
        self._pulse: ms.HeartbeatAck | None = None
        self._to_write = asyncio.Event()
        self._http: httpx.AsyncClient | None = None

    def __await__(self) -> Generator[Any, None, Consultation]:
        return self._open().__await__()

    async def __aenter__(self) -> Consultation:
        return await self._open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _open(self) -> Consultation:
        """Join, and wait until the state is whole."""
        self._runner = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(self._open_timeout_s):
                await self._caught_up()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise Disconnected(
                    f"not joined in {self._open_timeout_s} s: {self._fault}"
                ) from None
            raise
        return Consultation(self)

    async def close(self) -> None:
        """Leave the room; may be called again."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        self._end(Disconnected("left the room", CloseCode.NORMAL))
        if self._http is not None:
            await self._http.aclose()

    @property
    def connected(self) -> bool:
        """Whether a socket is up now."""
        return self._socket is not None

    async def _run(self) -> None:
        attempt = 0
        while self._ended is None:
            welcomed = self.session.welcome
            retry_after_s = await self._connect_once()
            # Only a welcome shows that joining works; an accepted handshake alone does not.
            attempt = 0 if self.session.welcome is not welcomed else attempt + 1
            if self._ended is None:
                pause = joining.pause_s(attempt, retry_after_s, random.random())
                logger.info("connection lost (%s); trying again in %.1f s", self._fault, pause)
                await asyncio.sleep(pause)

    async def _connect_once(self) -> float | None:
        """Hold one connection to its end; return the seconds that the server asks to wait."""
        try:
            async with ws.connect(
                self._url,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                max_size=MAX_WELCOME_BYTES,
                compression=None,
                ping_interval=None,  # the protocol's own heartbeat says more
                close_timeout=2,
                ssl=self._ssl,
            ) as socket:
                try:
                    await self._converse(socket)
                finally:
                    self._socket = None
                    self._notify()
                    # Left to the library, an exception would tell the server 1011.
                    await socket.close()
        except InvalidStatus as refusal:
            status = refusal.response.status_code
            self._fault = f"HTTP {status}"
            if joining.is_final_status(status):
                self._end(Disconnected(f"the server answers HTTP {status}"))
            return joining.seconds(refusal.response.headers.get("Retry-After"))
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd is not None else 1006
            reason = self._fatal.code if self._fatal is not None else None
            self._fault = f"closed with {code}"
            if not self.session.closed(code):
                self._end(Disconnected(f"closed with {code} ({reason})", code, reason))
        except (OSError, InvalidHandshake, TimeoutError, BadMessage) as fault:
            self._fault = f"{type(fault).__name__}: {fault}"
        except Exception as fault:
            # The border of the connection: whoever waits must hear that nobody reads any more.
            logger.exception("the client's reader failed")
            self._end(Disconnected(f"a fault of the client: {fault!r}"))
        return self.session.retry_after_s

    async def _converse(self, socket: ws.ClientConnection) -> None:
        token = await consultation.current(self.token)
        self._fatal = None
        await socket.send(encode(self.session.hello(token)), text=True)
        self._silence_s, self._leave_at = HELLO_TIMEOUT_S, float("inf")
        writer: asyncio.Task[None] | None = None
        try:
            while (frame := await self._next_frame(socket)) is not None:
                for message in self.session.receive(frame):
                    if isinstance(message, Resync):
                        self._fault = message.reason
                        return
                    if isinstance(message, ms.Welcome) and writer is None:
                        writer = asyncio.create_task(self._write(socket))
                    self._take(message)
                self._notify()
            self._fault = "the server asked to come back"
            self.session.retry_after_s = None
        finally:
            if writer is not None:
                writer.cancel()
                await asyncio.gather(writer, return_exceptions=True)

    async def _next_frame(self, socket: ws.ClientConnection) -> str | bytes | None:
        """Read a frame; `None` when it is time to leave. Raises `TimeoutError` in silence."""
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(min(self._silence_s, self._leave_at - clock())):
                return await socket.recv()
        except TimeoutError:
            if clock() >= self._leave_at:
                return None
            raise TimeoutError(f"nothing was heard for {self._silence_s} s") from None

    async def _write(self, socket: ws.ClientConnection) -> None:
        """Send again what has no answer, then what passes, as long as the socket lives."""
        with suppress(ConnectionClosed):
            sent: set[ms.Op | ms.Ask] = set()
            while unsent := [act for act in self.session.pending() if act not in sent]:
                for act in unsent:
                    sent.add(act)
                    await socket.send(encode(act), text=True)
            self._socket = socket
            self._notify()
            while True:
                await self._to_write.wait()
                self._to_write.clear()
                pulse, self._pulse = self._pulse, None
                if pulse is not None:
                    await socket.send(encode(pulse), text=True)
                presence, self._presence = self._presence, None
                if presence is not None:
                    await socket.send(encode(presence), text=True)
                    await asyncio.sleep(PRESENCE_PAUSE_S)

    def _take(self, message: ServerMessage) -> None:
        """Hand a message to whoever waits for it; never waits itself."""
        match message:
            case ms.Welcome():
                self._silence_s = MISSED_HEARTBEATS * message.heartbeat_s
                if self._upload_slots is None:
                    self._upload_slots = asyncio.Semaphore(message.limits.max_streams)
            case ms.Goaway():
                self._leave_at = asyncio.get_running_loop().time() + message.retry_after
            case ms.Heartbeat():
                self._pulse = ms.HeartbeatAck(t=message.t)
                self._to_write.set()
            case ms.Ack(op_id=op_id, seq=seq) if op_id in self._answers:
                self._answers.pop(op_id).set_result(seq)
            case ms.Nack(op_id=op_id) if op_id in self._answers:
                refusal = Refused(message.code, message.message, message.retry_after)
                self._answers.pop(op_id).set_exception(refusal)
            case ms.Error():
                self._fatal = message if message.fatal else self._fatal
            case _:
                pass
        self.surroundings.take(message)
        self.uploads.take(message)
        for reader in self._readers:
            reader.offer(message)

    def new_id(self) -> str:
        """Make an id of 128 random bits."""
        return secrets.token_hex(16)

    async def act(self, act_id: str, message: ms.Op | ms.Ask) -> int:
        """Keep sending a lasting act until its answer comes; return its event's number."""
        consultation.refuse_unreadable(message)
        while True:
            try:
                return await self._act_once(act_id, message)
            except Refused as refusal:
                if refusal.code is not ErrorCode.RATE_LIMITED:
                    raise
                await asyncio.sleep(refusal.retry_after_s or 1.0)

    async def _act_once(self, act_id: str, message: ms.Op | ms.Ask) -> int:
        if self._ended is not None:
            raise self._ended
        self.session.remember(message)
        answer = self._answers.setdefault(act_id, asyncio.get_running_loop().create_future())
        try:
            if self._socket is not None:
                with suppress(ConnectionClosed):  # then it is sent again after the next welcome
                    await self._socket.send(encode(message), text=True)
            return await asyncio.shield(answer)
        finally:
            self._answers.pop(act_id, None)

    async def say(self, message: ClientMessage) -> None:
        """Send a message once a socket is up."""
        while True:
            with suppress(SocketLost):
                return await (await self.greeted()).send(message)

    def put_presence(self, presence: ms.Presence) -> None:
        """Send where we are soon; a newer one replaces it."""
        self._presence = presence
        self._to_write.set()

    def subscribe(self, kinds: tuple[type[ServerMessage], ...]) -> AsyncIterator[Any]:
        """Listen from now on."""
        reader = Reader(self.until, kinds)
        self._readers.add(reader)
        return reader

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on the state holds; raises `Disconnected` at the end."""
        while not holds():
            if self._ended is not None:
                raise self._ended
            await self._changed.wait()

    async def fetch(self, path: str) -> bytes:
        """Fetch over HTTP from the same server, with the newest ticket."""
        if self._http is None:
            origin = joining.http_origin(self._url)
            self._http = httpx.AsyncClient(base_url=origin, verify=self._ssl or True)
        response = await self._http.get(path, params={"ticket": self.surroundings.media.ticket})
        return response.raise_for_status().content

    async def upload(self, source: Path | bytes, flow: Outflow, progress: Progress | None) -> str:
        """Send bytes until they are stored; return the asset's id."""
        content = await asyncio.to_thread(_Content, source)
        flow.size, flow.sha256 = content.size, content.sha256
        assert self._upload_slots is not None, "a welcome came before the consultation"
        try:
            async with self._upload_slots:
                return await self.uploads.store(flow, self, content.read, progress)
        finally:
            content.close()

    async def greeted(self) -> GreetedSocket:
        """Wait for a socket whose welcome came, and for the events that it spoke of."""
        # A socket that closed is let go of by the reader a moment after a writer met it.
        await self.until(lambda: self._socket is not None and self._socket.state is State.OPEN)
        socket = self._socket
        assert socket is not None, "nothing runs between the condition and here"
        await self._caught_up()

        async def send(frame: bytes, is_text: bool) -> None:
            try:
                await socket.send(frame, text=is_text)
            except ConnectionClosed:
                raise SocketLost from None

        return GreetedSocket(send, self.until, lambda: self._socket is socket)

    async def _caught_up(self) -> None:
        await self.until(
            lambda: (now := self.session).welcome is not None and now.state.seq >= now.welcome.head
        )

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _end(self, end: Disconnected) -> None:
        if self._ended is None:
            self._ended = end
        while self._answers:
            self._answers.popitem()[1].set_exception(self._ended)
        self._notify()


class _Content:
    """The bytes of an upload; reading them does not hold the event loop up."""

    def __init__(self, source: Path | bytes) -> None:
        self._file: BinaryIO = source.open("rb") if isinstance(source, Path) else BytesIO(source)
        self.sha256 = hashlib.file_digest(self._file, "sha256").hexdigest()
        self.size = self._file.seek(0, 2)

    async def read(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes from `offset` on."""
        return await asyncio.to_thread(self._read, offset, size)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)
