"""Several server processes behind one port: started, told what to do, started again when they die.

parent ─ listening socket, folder, the one engine process
  ├─ worker 0 ─┐
  ├─ worker 1 ─┼─ accept on the inherited socket, connect to the engine's, meet in Redis
  └─ …        ─┘
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from server.config import Settings
from server.metrics import numbers_file

log = structlog.get_logger(__name__)

FIRST_BACK_OFF_S = 0.25
LONGEST_BACK_OFF_S = 10.0
# A worker that lived so long did not die of its start.
WELL_AFTER_S = 30.0
# What a worker may need beyond its drain.
GRACE_S = 10.0
_PACKAGE_ROOT = str(Path(__file__).resolve().parent.parent)


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told on its standard input, which stays open as long as the parent lives."""

    number: int
    listening: int
    engine: str
    numbers: str
    settings: Settings


def encode(assignment: Assignment) -> bytes:
    """Write an assignment as a line. Not on the command line: it holds the secret."""
    return msgspec.json.encode(assignment, enc_hook=str) + b"\n"


def decode(line: bytes) -> Assignment:
    """Read an assignment."""

    def path(kind: type, value: Any) -> Any:
        return kind(value)

    return msgspec.json.decode(line, type=Assignment, dec_hook=path)


def engine_socket(runtime: Path) -> Path:
    """Where the engine of a runtime folder listens."""
    return runtime / "engine.sock"


class Workers:
    """All workers of one parent."""

    def __init__(self, settings: Settings, listening: socket.socket, runtime: Path) -> None:
        self._settings = settings
        self._listening = listening
        self._runtime = runtime
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Keep every worker alive until SIGTERM or SIGINT, then let them drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        async with asyncio.TaskGroup() as tasks:
            for worker in range(self._settings.workers):
                tasks.create_task(self._keep(worker), name=f"worker {worker}")

    def _stop(self) -> None:
        # Also the second time: a worker that is told twice does not wait.
        self._stopping.set()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.terminate()

    async def _keep(self, worker: int) -> None:
        loop = asyncio.get_running_loop()
        back_off_s = FIRST_BACK_OFF_S
        while not self._stopping.is_set():
            began = loop.time()
            await self._live(worker)
            if loop.time() - began > WELL_AFTER_S:
                back_off_s = FIRST_BACK_OFF_S
            with suppress(TimeoutError):
                async with asyncio.timeout(back_off_s):
                    await self._stopping.wait()
            back_off_s = min(back_off_s * 2, LONGEST_BACK_OFF_S)

    async def _live(self, worker: int) -> None:
        """One life of a worker, from its start to its end."""
        process = await self._spawn(worker)
        self._processes[worker] = process
        if self._stopping.is_set():
            process.terminate()
        ended = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await asyncio.wait({ended}, timeout=self._settings.drain_s + GRACE_S)
            if not ended.done():
                log.warning("worker killed: it did not stop", worker=worker)
                process.kill()
            code = await ended
            if not self._stopping.is_set():
                log.error("worker lost, another one is started", worker=worker, code=code)
        finally:
            stopping.cancel()
            del self._processes[worker]
            numbers_file(self._runtime, worker).unlink(missing_ok=True)
            assert process.stdin is not None
            process.stdin.close()

    async def _spawn(self, worker: int) -> asyncio.subprocess.Process:
        path = os.pathsep.join(filter(None, [_PACKAGE_ROOT, os.environ.get("PYTHONPATH")]))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "server.worker",
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            pass_fds=(self._listening.fileno(),),
            # Ctrl-C in a terminal reaches the whole group; the parent passes it on, once.
            start_new_session=True,
        )
        assert process.stdin is not None
        assignment = Assignment(
            number=worker,
            listening=self._listening.fileno(),
            engine=str(engine_socket(self._runtime)),
            numbers=str(self._runtime),
            settings=self._settings,
        )
        process.stdin.write(encode(assignment))
        return process
