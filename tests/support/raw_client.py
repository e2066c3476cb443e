"""A client that says exactly what it is told to, and keeps everything it hears."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from protocol.base import SUBPROTOCOL
from protocol.media import MediaFrame

PATIENCE_S = 10.0
_numbers = itertools.count(1)


class RawClient:
    """One socket. `heard` holds every message in its order; heartbeats are answered."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: list[dict[str, Any]] = []
        self.welcome: dict[str, Any] = {}
        self.session = ""
        self.answers_heartbeats = True
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, url: str, **options: Any) -> RawClient:
        """Connect and say nothing."""
        return cls(
            await websockets.connect(
                url, subprotocols=[SUBPROTOCOL], max_size=None, compression=None, **options
            )
        )

    async def hello(self, name: str = "Mei", **fields: Any) -> dict[str, Any]:
        """Say hello and wait for the welcome."""
        fields.setdefault("session", f"session-{name}-{next(_numbers):08d}".replace(" ", "_"))
        self.session = fields["session"]
        await self.say(type="hello", client="test", name=name, **fields)
        self.welcome = await self.hear("welcome")
        return self.welcome

    async def say(self, **message: Any) -> None:
        """Send one message."""
        await self.socket.send(json.dumps(message))

    async def op(self, op_id: str, **op: Any) -> dict[str, Any]:
        """Do an op and return its answer."""
        await self.say(type="op", op_id=op_id, op=op)
        return await self.answer(op_id)

    async def comment(self, op_id: str, text: str = "hello") -> dict[str, Any]:
        """Add a comment whose id is the op's."""
        return await self.op(op_id, type="comment.add", id=op_id, text=text)

    async def answer(self, op_id: str) -> dict[str, Any]:
        """Wait for the ack or nack of an act."""
        return await self.hear("ack", "nack", op_id=op_id)

    async def hear(self, *types: str, **fields: Any) -> dict[str, Any]:
        """Wait for a message of one of the types whose fields are as given, past ones included."""

        def fits(message: dict[str, Any]) -> bool:
            return message["type"] in types and all(
                message.get(name) == value for name, value in fields.items()
            )

        return await self.until(lambda: next(filter(fits, self.heard), None))

    async def until(self, look: Callable[[], Any]) -> Any:
        """Wait until `look` finds something."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := look()):
                if self._reader.done():
                    raise AssertionError(f"closed {self.close_code}; heard {self.heard[-5:]}")
                self._changed.clear()
                await self._changed.wait()
        return found

    def events(self) -> list[dict[str, Any]]:
        """The numbered messages, as they came."""
        return [message for message in self.heard if "seq" in message and "actor" in message]

    def seqs(self) -> list[int]:
        """The numbers of the events, as they came."""
        return [event["seq"] for event in self.events()]

    @property
    def close_code(self) -> int | None:
        """The code that the server closed with; None while open."""
        return self.socket.close_code

    async def closed(self) -> int:
        """Wait until the socket is closed and return the code."""
        async with asyncio.timeout(PATIENCE_S):
            await self._reader
        assert self.socket.close_code is not None
        return self.socket.close_code

    async def upload(
        self, content: bytes, stream: int = 1, chunk: int = 65_536, **fields: Any
    ) -> dict[str, Any]:
        """Upload within the credit and return `stream.closed`."""
        fields.setdefault("size", len(content))
        await self.say(type="stream.open", stream=stream, **fields)
        opened = await self.hear("stream.opened", "stream.closed", stream=stream)
        if opened["type"] == "stream.closed":
            return opened
        await self.send_chunks(content[opened["offset"] :], stream, chunk)
        await self.say(type="stream.close", stream=stream)
        return await self.hear("stream.closed", stream=stream)

    async def send_chunks(
        self, content: bytes, stream: int = 1, chunk: int = 65_536, first: int = 0
    ) -> None:
        """Send bytes as chunks, waiting for credit."""
        sent = 0
        for number, start in enumerate(range(0, len(content), chunk), first):
            piece = content[start : start + chunk]

            def may_send(size: int = sent + len(piece)) -> bool:
                return size <= self._credit(stream)

            await self.until(may_send)
            await self.socket.send(MediaFrame(stream, number, piece).serialize())
            sent += len(piece)

    def _credit(self, stream: int) -> int:
        grants = [m for m in self.heard if m["type"] in ("stream.opened", "stream.credit")]
        return sum(m["credit"] for m in grants if m["stream"] == stream)

    async def close(self) -> None:
        """Leave."""
        await self.socket.close()
        await asyncio.gather(self._reader, return_exceptions=True)

    def cut(self) -> None:
        """Lose the connection without a word."""
        self.socket.transport.abort()

    async def _read(self) -> None:
        try:
            async for raw in self.socket:
                messages = json.loads(raw)
                for message in messages if isinstance(messages, list) else [messages]:
                    self.heard.append(message)
                    if message["type"] == "heartbeat" and self.answers_heartbeats:
                        await self.say(type="heartbeat.ack", t=message["t"])
                self._changed.set()
        except ConnectionClosed:
            pass
        finally:
            self._changed.set()
