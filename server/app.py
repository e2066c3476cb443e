"""The composition root: everything is built here, once, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import itertools
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import TextIO

import structlog
import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from engine.api import Engine
from engine.client import EngineClient, EngineSettings, default_models_cache
from protocol import codec
from protocol.base import MAX_FRAME_BYTES
from protocol.errors import CloseCode, ErrorCode, Forbidden, OpRefused, ProtocolError
from protocol.messages import Error
from server.assets import Assets, Disk
from server.auth import Auth, is_name
from server.background import Background
from server.broker_memory import MemoryBroker
from server.config import BadSettings, Settings
from server.connection import Connection
from server.database import Database
from server.drain import Drain
from server.health import EngineWatch, Health
from server.hearing import Hearing
from server.house import RETRY_S, House
from server.hub import Hub
from server.ingest import Ingest
from server.log_sqlite import SqliteLog
from server.looking import Looking
from server.mending import Mending
from server.metrics import HouseCollector, MetricsPage
from server.origins import Origins
from server.pages import Pages
from server.transport import HttpProtocol, WebSocketProtocol
from server.turn_records import TurnRecords
from server.turns import Turns
from server.web import SafeHeaders, page_route

log = structlog.get_logger(__name__)


class Server:
    """The whole house around one engine; `app` is what uvicorn serves."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        clock, wall = time.monotonic, time.time
        database = Database(settings.folder / "consilium.sqlite3")
        self._database = database
        self._disk = Disk()
        self._background = Background()
        self._origins = Origins(settings.allowed_origins, settings.is_open)
        self._numbers = itertools.count(1)
        room_log, records = SqliteLog(database), TurnRecords(database)
        assets = Assets(settings.folder, self._disk)
        self.hub = Hub(
            room_log,
            MemoryBroker(),
            self._background,
            clock,
            snapshot_events=settings.snapshot_events,
            blip_s=settings.blip_s,
            idle_room_s=settings.idle_room_s,
            room_bytes=settings.room_bytes,
        )
        looking = Looking(engine, assets, self.hub, self._background, wall)
        turns = Turns(
            engine,
            self.hub,
            assets,
            records,
            self._background,
            wall,
            max_new_tokens=settings.max_new_tokens,
            room_turns=settings.room_turns,
            perception_wait_s=settings.perception_wait_s,
            gather_s=settings.gather_s,
        )
        hearing = Hearing(engine, assets, self.hub, looking, turns, self._background)
        ingest = Ingest(
            assets,
            self._disk,
            self.hub,
            self._background,
            looking.look,
            hearing.begin,
            wall,
            max_asset_bytes=settings.max_asset_bytes,
            max_streams=settings.max_streams,
            credit_bytes=settings.credit_bytes,
            resume_s=settings.upload_resume_s,
            room_uploads=settings.room_uploads,
            room_assets=settings.room_assets,
        )
        self.hub.on_load = Mending(turns, ingest, looking, self._background, wall).mend
        self._watch = EngineWatch(engine)
        self._health = Health(self._watch, room_log)
        self.drain = Drain(self.hub, turns, self._health, settings.drain_s)
        ticket_key = _ticket_key(settings.folder / "ticket.key")
        auth = Auth(settings.secret, ticket_key, settings.ticket_s)
        self._house = House(
            settings=settings,
            auth=auth,
            hub=self.hub,
            log=room_log,
            ingest=ingest,
            turns=turns,
            engine=self._watch,
            background=self._background,
            clock=clock,
            wall=wall,
            is_draining=lambda: self.drain.has_begun,
        )
        registry = CollectorRegistry()
        registry.register(HouseCollector(self.hub, turns, self._background))
        pages = Pages(auth, self.hub, assets, records)
        routes: list[BaseRoute] = [
            Route("/healthz", self._health.healthz),
            Route("/readyz", self._health.readyz),
            Route("/metrics", MetricsPage(registry).show),
            *pages.routes(),
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
        self._background.spawn(self.hub.sweep_until_cancelled(), "sweep")
        self._background.spawn(self._watch.watch_until_cancelled(), "engine watch")
        try:
            yield
        finally:
            await self._background.close()
            await self._database.close()
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


def bound_socket(host: str, port: int) -> socket.socket:
    """Bind and listen; raises `OSError` when the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


def claim_folder(folder: Path) -> TextIO:
    """Make the data folder this process's own until the file is closed.

    Raises `BadSettings` when it cannot be written, or when another server has it: two that number
    the same rooms without a bus between them would each tell their people half of what happens.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise BadSettings(f"{folder} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise BadSettings(f"another server uses {folder.resolve()}") from None
    return lock


def engine_for(settings: Settings, runtime: Path) -> EngineClient:
    """The engine's process as these settings want it; not started yet."""
    cache = settings.models_cache or default_models_cache(dict(os.environ))
    return EngineClient(
        runtime / "engine.sock",
        EngineSettings(
            models_cache=str(cache),
            model=settings.model,
            speech_model=settings.speech_model,
            dtype="fp32" if settings.engine_dtype == "fp32" else "bf16",
            threads=settings.engine_threads,
        ),
        ready_timeout_s=settings.engine_wait_s,
        on_stage=lambda stage: log.info("engine", stage=stage),
    )


async def run(settings: Settings, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; the engine comes up behind the open port."""
    # A Unix socket's path has 107 bytes at most, which a data folder may well exceed.
    runtime = Path(tempfile.mkdtemp(prefix="consilium-"))
    engine = engine_for(settings, runtime)
    await engine.start()
    server = Server(settings, engine)
    web = quiet_uvicorn(server)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if stopping.is_set():
            # Asked for twice: whoever asks does not want to wait.
            web.should_exit = True
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)

    async def leave() -> None:
        await stopping.wait()
        await server.drain.run()
        web.should_exit = True

    leaving = asyncio.create_task(leave(), name="leave")
    try:
        port = listening.getsockname()[1]
        if settings.port_file is not None:
            _write_whole(settings.port_file, f"{port}\n")
        log.info("serving", url=_address(settings.host, port), is_open=settings.is_open)
        await web.serve(sockets=[listening])
    finally:
        leaving.cancel()
        await engine.stop()
        shutil.rmtree(runtime, ignore_errors=True)


def serve(settings: Settings) -> None:
    """Run a server in this process until it is told to stop."""
    _configure_logs()
    config = uvicorn.Config(app="", loop="auto")
    try:
        with (
            claim_folder(settings.folder),
            bound_socket(settings.host, settings.port) as listening,
            asyncio.Runner(loop_factory=config.get_loop_factory()) as runner,
        ):
            runner.run(run(settings, listening))
    except BadSettings as error:
        raise SystemExit(f"consilium: {error}") from None
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        message = f"{settings.host}:{settings.port}: {error.strerror}"
        raise SystemExit(f"consilium: cannot listen on {message}") from None


def _configure_logs() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    processors: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    # A person reads lines, everything else reads JSON.
    if sys.stdout.isatty():
        processors.append(structlog.dev.ConsoleRenderer())
    else:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _ticket_key(path: Path) -> str:
    """Read the key that signs tickets, or make it; it outlives a restart."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        file.write(key := secrets.token_hex(32))
    return key


def _write_whole(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(text)
    os.replace(unfinished, path)
