"""A real WebSocket server that misbehaves on purpose: it follows a script, one act a connection.

A script is a list of coroutine functions; connection n runs the n-th, and the last one serves
all that come later. Each gets a `Peer`, which has what a server needs to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

import consilium
from protocol import messages as ms
from protocol.base import SUBPROTOCOL, ClientMessage, ServerMessage
from protocol.codec import decode_client, encode
from protocol.events import CommentAdded, Event
from protocol.media import MediaFrame
from protocol.shapes import Actor
from protocol.state import Snapshot

MEI = Actor(id="p-mei", name="Mei")
AT = 1_767_225_600_000
M = TypeVar("M", bound=ClientMessage | MediaFrame)


class Peer:
    """The server's end of one connection."""

    def __init__(self, server: ScriptedServer, socket: ServerConnection) -> None:
        self.server = server
        self.socket = socket
        self.heard: list[ClientMessage | MediaFrame] = []

    async def hear(self, kind: type[M]) -> M:
        """Wait for a message of a kind; what comes before it stays in `heard`."""
        while True:
            frame = await self.socket.recv()
            if isinstance(frame, bytes):
                read: list[Any] = [MediaFrame.parse(frame)]
            else:
                read = list(decode_client(frame))
            self.heard += read
            for message in read:
                if isinstance(message, kind):
                    return message

    async def say(self, *messages: ServerMessage) -> None:
        for message in messages:
            await self.socket.send(encode(message).decode())

    async def welcome(
        self,
        *,
        head: int | None = None,
        snapshot: Snapshot | None = None,
        epoch: str = "e1",
        heartbeat_s: float = 5.0,
        max_streams: int = 4,
    ) -> ms.Hello:
        """Take the hello, and say welcome."""
        hello = await self.hear(ms.Hello)
        self.server.hellos.append(hello)
        await self.say(
            ms.Welcome(
                participant="p-mei",
                name=hello.name,
                role="member",
                room="ward-3",
                epoch=epoch,
                head=self.server.seq if head is None else head,
                limits=ms.Limits(
                    max_asset_bytes=2**30, max_streams=max_streams, initial_credit_bytes=1_000
                ),
                heartbeat_s=heartbeat_s,
                media=ms.MediaAccess(base="/v1/assets", ticket="tk", expires_at=AT),
                snapshot=snapshot,
            )
        )
        return hello

    async def tell(self, event: Event, epoch: str = "e1") -> int:
        """Number an event and send it."""
        self.server.seq += 1
        await self.say(msgspec.structs.replace(event, seq=self.server.seq, epoch=epoch))
        return self.server.seq

    async def close(self, code: int) -> None:
        await self.socket.close(code)

    def drop(self) -> None:
        """Cut the connection without a close frame, as a network does."""
        self.socket.transport.abort()

    async def stay(self) -> None:
        """Read until the client leaves, and keep what it said."""
        try:
            while True:
                await self.hear(ClientMessage)  # type: ignore[type-abstract]
        except ConnectionClosed:
            pass


Act = Callable[[Peer], Awaitable[None]]


class ScriptedServer:
    """What happened over all connections; `seq` is the number of the last event."""

    def __init__(self, script: list[Act]) -> None:
        self.script = script
        self.url = ""
        self.seq = 0
        self.hellos: list[ms.Hello] = []
        self.peers: list[Peer] = []
        self.arrivals: list[float] = []
        self.faults: list[BaseException] = []

    async def run(self, socket: ServerConnection) -> None:
        self.arrivals.append(asyncio.get_running_loop().time())
        act = self.script[min(len(self.peers), len(self.script) - 1)]
        peer = Peer(self, socket)
        self.peers.append(peer)
        try:
            await act(peer)
        except ConnectionClosed:
            pass
        except Exception as fault:
            self.faults.append(fault)
            raise


@asynccontextmanager
async def scripted(*script: Act, **options: Any):
    """Serve the script on a free port; a fault in an act, or 10 s, fails the test."""
    server = ScriptedServer(list(script))
    async with (
        asyncio.timeout(10),
        serve(
            server.run, "127.0.0.1", 0, subprotocols=[SUBPROTOCOL], compression=None, **options
        ) as listening,
    ):
        port = listening.sockets[0].getsockname()[1]
        server.url = f"ws://127.0.0.1:{port}/v1/rooms/ward-3"
        yield server
    assert not server.faults, server.faults


def comment(name: str) -> CommentAdded:
    return CommentAdded(at=AT, actor=MEI, id=name, text=name)


def join(server, **options):
    return consilium.connect(server.url, name="Mei", **options)


async def serve_quietly(peer):
    await peer.welcome()
    await peer.stay()
