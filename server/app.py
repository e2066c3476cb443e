"""The composition root: everything is built here, once, and nowhere else."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import time
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from engine.api import Engine
from protocol import codec
from protocol.base import MAX_FRAME_BYTES
from protocol.errors import CloseCode, ErrorCode, Forbidden, OpRefused, ProtocolError
from protocol.messages import Error
from server.assets import Assets, Disk
from server.auth import Auth, is_name
from server.background import Background
from server.camera import Watching
from server.config import Settings
from server.connection import Connection
from server.drain import Drain
from server.exporting import Exporting
from server.foresight import Foresight
from server.health import EngineWatch, Health
from server.hearing import Hearing
from server.house import RETRY_S, House
from server.hub import Hub
from server.ingest import Ingest
from server.looking import Looking
from server.mending import Mending
from server.metrics import HouseCollector, MetricsPage, SharedNumbers
from server.origins import Origins
from server.pages import Pages
from server.store import store_for
from server.transport import HttpProtocol, WebSocketProtocol
from server.turns import Turns
from server.web import SafeHeaders, page_route


class Server:
    """The whole house around one engine; `app` is what uvicorn serves.

    `numbers` is where the workers of one machine tell each other their metrics.
    """

    def __init__(
        self, settings: Settings, engine: Engine, numbers: SharedNumbers | None = None
    ) -> None:
        clock, wall = time.monotonic, time.time
        self._disk = Disk()
        self._background = Background()
        store = store_for(settings.folder, settings.redis, self._background, settings.lease_s)
        self._store = store
        self._origins = Origins(settings.allowed_origins, settings.is_open)
        self._numbers = itertools.count(1)
        assets = Assets(settings.folder, self._disk)
        self.hub = Hub(
            store.log,
            store.broker,
            self._background,
            clock,
            wall,
            snapshot_events=settings.snapshot_events,
            blip_s=settings.blip_s,
            idle_room_s=settings.idle_room_s,
            room_bytes=settings.room_bytes,
        )
        looking = Looking(engine, assets, self.hub, store.leases, self._background, wall)
        turns = Turns(
            engine,
            self.hub,
            assets,
            store.records,
            store.leases,
            self._background,
            wall,
            max_new_tokens=settings.max_new_tokens,
            room_turns=settings.room_turns,
            perception_wait_s=settings.perception_wait_s,
            gather_s=settings.gather_s,
        )
        if settings.look_ahead:
            foresight = Foresight(
                engine,
                self.hub,
                assets,
                self._background,
                questions=settings.frequent_questions(),
                max_new_tokens=settings.max_new_tokens,
            )
            looking.on_read = turns.on_end = foresight.look_ahead
        hearing = Hearing(engine, assets, self.hub, looking, turns, self._background)
        watching = Watching(engine, assets, self.hub, looking, self._background)
        ingest = Ingest(
            assets,
            self._disk,
            self.hub,
            store.leases,
            self._background,
            looking.look,
            hearing.begin,
            watching.begin,
            wall,
            max_asset_bytes=settings.max_asset_bytes,
            max_streams=settings.max_streams,
            credit_bytes=settings.credit_bytes,
            resume_s=settings.upload_resume_s,
            room_uploads=settings.room_uploads,
            room_assets=settings.room_assets,
        )
        self.hub.on_load = Mending(
            turns, ingest, looking, self.hub, store.leases, self._background, wall
        ).mend
        self.hub.neighbours.on_end_turn = turns.end_for_neighbour
        self.hub.neighbours.on_hand_over = ingest.hand_over
        self._watch = EngineWatch(engine)
        self._health = Health(self._watch, store)
        self.drain = Drain(self.hub, turns, self._health, settings.drain_s)
        auth = Auth(settings.secret, ticket_key(settings.folder / "ticket.key"), settings.ticket_s)
        self._house = House(
            settings=settings,
            auth=auth,
            hub=self.hub,
            log=store.log,
            ingest=ingest,
            turns=turns,
            engine=self._watch,
            background=self._background,
            clock=clock,
            wall=wall,
            is_draining=lambda: self.drain.has_begun,
            is_durable=lambda: not store.why_not_durable(),
        )
        registry = CollectorRegistry()
        self._numbers_shared = numbers
        self._collector = HouseCollector(self.hub, turns, self._background, store.broker, numbers)
        registry.register(self._collector)
        pages = Pages(auth, self.hub, assets, store.records)
        self.exporting = Exporting(
            auth, self.hub, store.log, assets, self._disk, settings.folder, wall
        )
        routes: list[BaseRoute] = [
            Route("/healthz", self._health.healthz),
            Route("/readyz", self._health.readyz),
            Route("/metrics", MetricsPage(registry, engine).show),
            *pages.routes(),
            *self.exporting.routes(),
            WebSocketRoute("/v1/rooms/{room}", self._serve_socket),
            page_route(settings.web_client),
        ]
        self.app = Starlette(
            routes=routes,
            middleware=[
                Middleware(SafeHeaders),
                # Tickets, not cookies, open pictures, so no credentials are ever asked for.
                Middleware(CORSMiddleware, allow_origins=settings.allowed_origins),
            ],
            lifespan=self._lifespan,
        )

    async def _serve_socket(self, websocket: WebSocket) -> None:
        room = websocket.path_params["room"]
        try:
            self._origins.check(websocket.headers)
            if len(self.hub.connections) >= self._house.settings.max_connections:
                text = "the server has no place for more connections"
                raise OpRefused(text, code=ErrorCode.OVERLOADED)
            if not is_name(room):
                raise Forbidden("a room's name has letters, digits and _ . : - only, no dot first")
        except (Forbidden, OpRefused) as refusal:
            await _turn_away(websocket, refusal)
            return
        number = next(self._numbers)
        connection = Connection(number, websocket, room, self._house)
        self.hub.connections[number] = connection
        try:
            await connection.run()
        finally:
            del self.hub.connections[number]

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self._store.start()
        if self._numbers_shared is not None:
            work = self._numbers_shared.write_until_cancelled(self._collector.own)
            self._background.spawn(work, "numbers")
        self._background.spawn(self.hub.sweep_until_cancelled(), "sweep")
        self._background.spawn(self._watch.watch_until_cancelled(), "engine watch")
        try:
            yield
        finally:
            await self._background.close()
            await self._store.close()
            self._disk.close()


async def _turn_away(websocket: WebSocket, refusal: ProtocolError) -> None:
    # Accepted first: a browser cannot see the status of a refused handshake.
    await websocket.accept()
    is_passing = isinstance(refusal, OpRefused)
    retry_s = RETRY_S if is_passing else None
    error = Error(code=refusal.code, message=refusal.message, fatal=True, retry_after=retry_s)
    await websocket.send_text(codec.encode(error).decode())
    await websocket.close(CloseCode.UNAVAILABLE if is_passing else CloseCode.FORBIDDEN)


class _Uvicorn(uvicorn.Server):
    """uvicorn without its own signals: it exits when the drain says so."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone; see `serve`."""
        yield


def quiet_uvicorn(server: Server) -> uvicorn.Server:
    """Make the HTTP and WebSocket layer; its settings are said here and nowhere else.

    `ws_max_queue` is not honoured by this implementation, and its pings would close a healthy
    client whose reading is paused: the protocol has its own heartbeat.
    """
    config = uvicorn.Config(
        server.app,
        http=HttpProtocol,
        ws=WebSocketProtocol,
        ws_max_size=MAX_FRAME_BYTES,
        ws_per_message_deflate=False,
        ws_ping_interval=None,
        lifespan="on",
        # Its access log would hold tickets, its WebSocket log the names of rooms.
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    return _Uvicorn(config)


def ticket_key(path: Path) -> str:
    """Read the key that signs tickets, or make it; it outlives a restart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        file.write(key := secrets.token_hex(32))
    return key
