"""Worker processes as the parent sees them: started, asked, given up on, replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal

import msgspec

import engine
from engine.api import EngineCode, EngineError, MediaFailed
from engine.perception.config import PerceptionConfig
from engine.perception.wire import (
    HEADER_BYTES,
    Accepted,
    Answer,
    Chunk,
    End,
    Finished,
    Request,
    frame,
    parse_answer,
    payload_length,
)

Role = Literal["decode", "read", "hear", "listen"]

# A worker that does not end this soon after SIGKILL hangs in the kernel; nobody waits for it.
_REAP_S = 5.0

_PASSED_ON = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


class WorkerProcess:
    """One process that answers one request at a time and is replaced when it is lost."""

    def __init__(self, role: Role, config: PerceptionConfig) -> None:
        self._role = role
        self._config = config
        self._process: asyncio.subprocess.Process | None = None
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The process's id; `None` when none runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start the process unless it runs."""
        if self.pid is not None:
            return
        config = self._config
        arguments = {
            "role": self._role,
            "memory-bytes": config.worker_memory_bytes,
            "ocr-threads": config.ocr_threads,
            "ocr-side-px": config.ocr_side_px,
            "ocr-batch": config.ocr_batch,
            "ocr-min-score": config.ocr_min_score,
            "speech-model": config.speech_model,
            "speech-threads": config.speech_threads,
        }
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "engine.perception.worker",
            *(f"--{name}={value}" for name, value in arguments.items()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(config.ocr_threads),
        )
        self.starts += 1

    async def ask(
        self,
        request: Request,
        limit_s: float | None,
        take: Callable[[Answer], None],
        accepted: Callable[[], None] = lambda: None,
    ) -> Finished:
        """Hand every answer to `take` as it comes and return the last one.

        `accepted` is called when the worker has begun: from then on `send` may follow. Raises
        `EngineError`: the code of a `MediaFailed`, `decoder_lost` when the process ended,
        `media_timeout` after `limit_s`. A worker that was not left idle is killed, also when the
        caller is cancelled.
        """
        is_idle = False
        try:
            async with asyncio.timeout(limit_s):
                await self._hand_over(request)
                accepted()
                while True:
                    answer = await self._answer()
                    match answer:
                        case MediaFailed():
                            is_idle = True
                            raise EngineError(answer.code, answer.message)
                        case Finished():
                            is_idle = True
                            return answer
                        case _:
                            take(answer)
        except TimeoutError as late:
            raise EngineError(
                EngineCode.MEDIA_TIMEOUT, "Looking at this item took too long."
            ) from late
        finally:
            if not is_idle:
                await self.kill()

    async def send(self, more: Chunk | End) -> None:
        """Add to the request that is being answered; raises `ConnectionError` when it is lost."""
        process = self._process
        if process is None or process.stdin is None:
            raise ConnectionResetError
        process.stdin.write(frame(more))
        await process.stdin.drain()

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal; does nothing when none runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def kill(self) -> None:
        """End the process at once; does nothing when none runs."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REAP_S):
                # Reads what is left in the pipe: `wait` alone would wait for ever for its end.
                await process.communicate()

    async def _hand_over(self, request: Request) -> None:
        """Give the request to a living worker: one that died while idle costs one more try."""
        for _ in range(2):
            await self.start()
            with contextlib.suppress(ConnectionError, EngineError):
                process = self._process
                assert process is not None and process.stdin is not None, "started above"
                process.stdin.write(frame(request))
                await process.stdin.drain()
                if isinstance(await self._answer(), Accepted):
                    return
            await self.kill()
        raise _lost()

    async def _answer(self) -> Answer:
        process = self._process
        if process is None or process.stdout is None:
            raise _lost()
        try:
            header = await process.stdout.readexactly(HEADER_BYTES)
            payload = await process.stdout.readexactly(payload_length(header))
            return parse_answer(payload)
        except (asyncio.IncompleteReadError, ValueError, msgspec.DecodeError) as lost:
            raise _lost() from lost


class WorkerPool:
    """A fixed number of workers of one role, each lent to one item at a time, in order."""

    def __init__(self, role: Role, count: int, config: PerceptionConfig) -> None:
        self.workers = [WorkerProcess(role, config) for _ in range(count)]
        self._free: asyncio.Queue[WorkerProcess] = asyncio.Queue(count)
        for worker in self.workers:
            self._free.put_nowait(worker)

    @property
    def is_at_work(self) -> bool:
        """Whether any of them has something in hand; may be asked from any thread."""
        return self._free.qsize() < len(self.workers)

    async def start(self) -> None:
        """Start all processes."""
        for worker in self.workers:
            await worker.start()

    async def stop(self) -> None:
        """End all processes."""
        for worker in self.workers:
            await worker.kill()

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[WorkerProcess]:
        """Wait for a free worker; it goes back when the block ends, alive again if it was lost."""
        worker = await self._free.get()
        try:
            yield worker
        finally:
            try:
                await worker.start()
            finally:
                self._free.put_nowait(worker)


def _lost() -> EngineError:
    return EngineError(EngineCode.DECODER_LOST, "The decoder ended while it looked at this item.")


def _environment(threads: int) -> dict[str, str]:
    """Let the worker import this very package and keep its libraries to their threads.

    Nothing else passes: a decoder that a hostile file took over must find no secrets there.
    """
    root = str(Path(engine.__file__).parent.parent)
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    inherited = os.environ.get("PYTHONPATH")
    return passed | {
        "PYTHONPATH": os.pathsep.join([root, inherited] if inherited else [root]),
        "OMP_NUM_THREADS": str(threads),
    }
