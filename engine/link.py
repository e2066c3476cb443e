"""One connection to the engine's process: calls by number, each with its stream of replies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress

from engine import wire
from engine.api import EngineCode, EngineError

LOST = "The engine was lost; it is being restarted."


class Link:
    """The calls in flight on one socket; when it is lost each of them ends with an error."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._numbers = itertools.count(1)
        # A turn has a few events a token and media a few thousand rows, so a queue is bounded
        # by what one request can make.
        self._replies: dict[int, asyncio.Queue[wire.Reply | None]] = {}
        self.is_lost = False

    def stream(self) -> Stream:
        """Return a new call; use it as a context, which abandons it when it is left early."""
        return Stream(self, next(self._numbers))

    async def ask(self, request: Callable[[int], wire.Request]) -> wire.Reply:
        """Send one request and return its one reply; raises `EngineError`."""
        with self.stream() as stream:
            self.write(request(stream.call))
            await self.drain()
            reply = await anext(stream)
            stream.is_over = True
            return reply

    def write(self, request: wire.Request) -> None:
        """Queue a request; `ask` waits until the queue is short, turns are few and small."""
        try:
            data = wire.frame(request)
        except ValueError:
            message = "The request is too big for the engine."
            raise EngineError(EngineCode.CONTEXT_FULL, message) from None
        if not self.is_lost:
            self._writer.write(data)

    async def drain(self) -> None:
        """Wait while more is queued than the engine has read; a loss is told by the reader."""
        with suppress(ConnectionError):
            await self._writer.drain()

    def enter(self, call: int) -> asyncio.Queue[wire.Reply | None]:
        replies: asyncio.Queue[wire.Reply | None] = asyncio.Queue()
        self._replies[call] = replies
        if self.is_lost:
            replies.put_nowait(None)
        return replies

    def leave(self, call: int, *, abandon: bool) -> None:
        del self._replies[call]
        if abandon:
            self.write(wire.Abandon(call))

    async def read_until_lost(self, reader: asyncio.StreamReader) -> None:
        while (body := await wire.read_frame(reader)) is not None:
            reply = wire.replies.decode(body)
            if replies := self._replies.get(reply.call):
                replies.put_nowait(reply)

    def lose(self) -> None:
        """Tell every open call that the engine is gone."""
        self.is_lost = True
        self._writer.close()
        for replies in self._replies.values():
            replies.put_nowait(None)


class Stream:
    """The replies to one call; ends with `EngineError` when the engine refuses or is lost."""

    def __init__(self, link: Link, call: int) -> None:
        self.call = call
        self.is_over = False
        self._link = link
        # Entered here, so that no reply can come before there is a place for it.
        self._replies = link.enter(call)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self._link.leave(self.call, abandon=not self.is_over)

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> wire.Reply:
        reply = await self._replies.get()
        if reply is None:
            self.is_over = True
            raise EngineError(EngineCode.ENGINE_LOST, LOST)
        if isinstance(reply, wire.Refused):
            self.is_over = True
            raise EngineError(reply.code, reply.message)
        return reply
