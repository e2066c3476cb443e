"""The process that `consilium serve` starts: its folder, its port, its engine, its end."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import TextIO

import structlog
import uvicorn

from engine.api import Engine
from engine.client import EngineClient, EngineSettings, default_models_cache
from server.app import Server, quiet_uvicorn, ticket_key
from server.config import BadSettings, Settings
from server.metrics import SharedNumbers
from server.workers import Workers, engine_socket

log = structlog.get_logger(__name__)


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


def claim_folder(folder: Path, *, is_shared: bool = False) -> TextIO:
    """Make the data folder this process's own until the file is closed.

    Servers that hear each other (`is_shared`) may have it together.

    Raises `BadSettings` when it cannot be written, or when another server has it: two that number
    the same rooms without a bus between them would each tell their people half of what happens.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise BadSettings(f"{folder} cannot be used: {error.strerror}") from None
    how = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise BadSettings(f"another server uses {folder.resolve()}") from None
    return lock


def engine_for(settings: Settings, runtime: Path) -> EngineClient:
    """The engine's process as these settings want it; not started yet."""
    cache = settings.models_cache or default_models_cache(dict(os.environ))
    return EngineClient(
        engine_socket(runtime),
        EngineSettings(
            models_cache=str(cache),
            model=settings.model,
            speech_model=settings.speech_model,
            deterministic=settings.engine_deterministic,
            dtype=settings.engine_dtype,
            device=settings.engine_device,
            threads=settings.engine_threads,
            kv_budget_bytes=settings.kv_budget_bytes,
            kv_ram_bytes=settings.kv_ram_bytes,
            kv_folder=str((settings.kv_folder or settings.folder / "kv").resolve()),
            kv_disk_bytes=settings.kv_disk_bytes,
            kv_disk_floor_bytes=settings.kv_disk_floor_bytes,
        ),
        ready_timeout_s=settings.engine_wait_s,
        on_stage=lambda stage: log.info("engine", stage=stage),
    )


async def serve_socket(
    settings: Settings,
    listening: socket.socket,
    engine: Engine,
    numbers: SharedNumbers | None = None,
    stopping: asyncio.Event | None = None,
) -> None:
    """Serve one process until SIGTERM, SIGINT or `stopping`; the second signal ends it at once."""
    server = Server(settings, engine, numbers)
    web = quiet_uvicorn(server)
    stop = stopping or asyncio.Event()
    loop = asyncio.get_running_loop()

    def told() -> None:
        if stop.is_set():
            # Asked for twice: whoever asks does not want to wait.
            web.should_exit = True
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)

    async def leave() -> None:
        await stop.wait()
        await server.drain.run()
        web.should_exit = True

    leaving = asyncio.create_task(leave(), name="leave")
    try:
        await web.serve(sockets=[listening])
    finally:
        leaving.cancel()


async def run(settings: Settings, listening: socket.socket) -> None:
    """Serve until told to stop; the engine comes up behind the open port."""
    await check_redis(settings)
    # Made before the workers read it.
    ticket_key(settings.folder / "ticket.key")
    # A Unix socket's path has 107 bytes at most, which a data folder may well exceed.
    runtime = Path(tempfile.mkdtemp(prefix="consilium-"))
    engine = engine_for(settings, runtime)
    await engine.start()
    try:
        port = listening.getsockname()[1]
        if settings.port_file is not None:
            _write_whole(settings.port_file, f"{port}\n")
        address = _address(settings.host, port)
        log.info("serving", url=address, is_open=settings.is_open, workers=settings.workers)
        if settings.workers > 1:
            await Workers(settings, listening, runtime).run()
        else:
            await serve_socket(settings, listening, engine)
    finally:
        await engine.stop()
        shutil.rmtree(runtime, ignore_errors=True)


async def check_redis(settings: Settings) -> None:
    """Raise `BadSettings` when the Redis that is asked for cannot be used."""
    if settings.redis is None:
        return
    try:
        from server.redis_link import RedisLink
    except ImportError:
        raise BadSettings("redis is missing: pip install 'consilium[redis]'") from None
    try:
        link = RedisLink(settings.redis)
    except ValueError as error:
        raise BadSettings(f"--redis: {error}") from None
    try:
        await link.check()
        if link.durability:
            log.warning("acknowledged does not mean on disk", detail=link.durability)
    finally:
        await link.close()


def serve(settings: Settings) -> None:
    """Run a server until it is told to stop."""
    configure_logs()
    config = uvicorn.Config(app="", loop="auto")
    try:
        with (
            claim_folder(settings.folder, is_shared=settings.redis is not None),
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


def configure_logs() -> None:
    """Write the log to standard output."""
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


def _write_whole(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(text)
    os.replace(unfinished, path)
