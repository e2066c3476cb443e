"""The whole server in the test's own loop, with uvicorn and a real socket on port 0."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from engine.client import EngineClient
from server.app import Server, quiet_uvicorn
from server.config import Settings
from server.serving import bound_socket
from tests.support.raw_client import RawClient


class Running:
    """A server that serves; `stop` ends it as the end of a process would."""

    def __init__(self, settings: Settings, server: Server) -> None:
        self.settings = settings
        self.server = server
        self._socket = bound_socket("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self.web = quiet_uvicorn(server)
        self._task: asyncio.Task[None] | None = None
        self._clients: list[RawClient] = []

    @classmethod
    async def start(cls, settings: Settings, engine: Any = None) -> Running:
        """Start a server around `engine`, or around one that is away for good."""
        if engine is None:
            nowhere = Path(settings.folder) / "no-engine.sock"
            engine = EngineClient(nowhere, ready_timeout_s=0.05)
        running = cls(settings, Server(settings, engine))
        running._task = asyncio.create_task(running.web.serve(sockets=[running._socket]))
        # uvicorn has a flag for it and nothing to wait for.
        while not running.web.started:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return running

    @property
    def base(self) -> str:
        """The address of its pages."""
        return f"http://127.0.0.1:{self.port}"

    async def open(self, room: str = "ward-7", **options: Any) -> RawClient:
        """Open a socket and say nothing."""
        client = await RawClient.open(f"ws://127.0.0.1:{self.port}/v1/rooms/{room}", **options)
        self._clients.append(client)
        return client

    async def join(self, name: str = "Mei", room: str = "ward-7", **hello: Any) -> RawClient:
        """Open a socket, say hello and wait for the welcome."""
        client = await self.open(room)
        await client.hello(name, **hello)
        return client

    async def stop(self) -> None:
        """End the server and every client."""
        for client in self._clients:
            await client.close()
        self.web.should_exit = True
        assert self._task is not None
        await self._task
