"""The engine's own process: one `LocalEngine` behind a Unix socket.

Started as `python -m engine.process --socket PATH --settings JSON`. It tells its start-up on
standard output and ends when its standard input does: a pipe that the parent holds, so that a
parent killed without warning leaves nothing behind.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never, cast

import msgspec

from engine import wire
from engine.api import EngineCode, EngineError, Observation
from engine.config import EngineConfig, UnsupportedModel
from engine.embedded import MANIFEST, TABLE
from engine.settings import EngineSettings

if TYPE_CHECKING:
    from engine.engine import LocalEngine, Sees

log = logging.getLogger(__name__)

# Streams one client may have open at once; the engine's own limits are far below.
MAX_CALLS = 4096
MAX_REASON_CHARS = 200


class EngineServer:
    """Serves one engine to every client that connects to its socket."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it leaves; its turns and media are cancelled then."""
        connection = _Connection(self._engine, writer)
        try:
            async with asyncio.TaskGroup() as calls:
                await connection.take_all(reader, calls)
                connection.abandon_all()
        except asyncio.CancelledError:
            # The process ends. asyncio's stream server would log a cancelled handler as a fault.
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


class _Connection:
    """One client: its open calls by number, and one writer at a time."""

    def __init__(self, engine: LocalEngine, writer: asyncio.StreamWriter) -> None:
        self._engine = engine
        self._writer = writer
        self._writing = asyncio.Lock()
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def take_all(self, reader: asyncio.StreamReader, calls: asyncio.TaskGroup) -> None:
        """Begin to answer each request as it comes, never waiting for an answer."""
        while (body := await wire.read_frame(reader)) is not None:
            try:
                request = wire.requests.decode(body)
            except msgspec.DecodeError as error:
                log.warning("a client was cut off: %s", error)
                return
            if isinstance(request, wire.Abandon):
                if task := self._tasks.get(request.call):
                    task.cancel()
            elif len(self._tasks) >= MAX_CALLS:
                log.warning("a client was cut off: more than %d calls at once", MAX_CALLS)
                return
            else:
                task = calls.create_task(self._serve(request))
                self._tasks[request.call] = task
                task.add_done_callback(partial(self._forget, request.call))

    def _forget(self, call: int, task: asyncio.Task[None]) -> None:
        del self._tasks[call]

    def abandon_all(self) -> None:
        """Cancel whatever the client was still waiting for."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def _serve(self, request: wire.Request) -> None:
        try:
            await self._answer(request)
        except EngineError as error:
            await self._send(wire.Refused(request.call, error.code, error.message))
        # The border of the process: one call's fault is told to its caller and ends there.
        except Exception:
            log.exception("a call failed")
            message = "The engine failed on this request."
            await self._send(wire.Refused(request.call, EngineCode.INTERNAL, message))

    async def _answer(self, request: wire.Request) -> None:
        engine, call = self._engine, request.call
        match request:
            case wire.Submit(turn=turn):
                async with aclosing(engine.submit(turn)) as events:
                    async for event in events:
                        await self._send(wire.Event(call, event))
                return
            case wire.Open(media=media):
                looking = cast(AsyncGenerator[Observation, None], engine.open(media))
                async with aclosing(looking) as observations:
                    async for observation in observations:
                        await self._send(wire.Observed(call, observation))
                return
            case wire.Cancel(turn=name):
                reply: wire.Reply = wire.Answered(call, found=await engine.cancel(name))
            case wire.Feed(media=name, chunk=chunk, pts_us=pts_us):
                await engine.feed(name, chunk, pts_us)
                reply = wire.Answered(call)
            case wire.Close(media=name):
                await engine.close(name)
                reply = wire.Answered(call)
            case wire.Prefetch(session=session):
                await engine.prefetch(session)
                reply = wire.Answered(call)
            case wire.Drop(session=session):
                await engine.drop(session)
                reply = wire.Answered(call)
            case wire.AskHealth():
                reply = wire.IsHealthy(call, await engine.health())
            case wire.AskStats():
                reply = wire.HasStats(call, await engine.stats())
            case wire.Abandon():
                raise AssertionError("an abandoned call is cancelled where it is read")
            case _:
                assert_never(request)
        await self._send(reply)

    async def _send(self, reply: wire.Reply) -> None:
        data = wire.frame(reply)
        # A client that is gone is noticed by the reader, which then cancels this call.
        with suppress(ConnectionError):
            async with self._writing:
                self._writer.write(data)
                await self._writer.drain()


def say(stage: wire.StartUp) -> None:
    """Tell the parent where the start-up is."""
    sys.stdout.buffer.write(msgspec.json.encode(stage) + b"\n")
    sys.stdout.buffer.flush()


async def run(socket: Path, settings: EngineSettings) -> None:
    """Load, serve until the parent is gone or SIGTERM comes, and end every turn."""
    began = time.monotonic()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    say(wire.Stage("libraries"))
    engine = await _load(settings)
    await engine.start()
    try:
        say(wire.Stage("first token"))
        await engine.health()
        server = await asyncio.start_unix_server(EngineServer(engine).serve, path=socket)
        os.chmod(socket, 0o600)
        say(wire.Ready(round(time.monotonic() - began, 3)))
        async with server, asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(_wait_for_parent(stop))
            await stop.wait()
            watch.cancel()
    finally:
        await engine.stop()


async def _load(settings: EngineSettings) -> LocalEngine:
    model = settings.model
    if embedded := TABLE.get(model):
        folder = embedded.folder(Path(settings.models_cache))
        if not (folder / MANIFEST).is_file():
            raise FileNotFoundError(f"{model} is not there yet: run `consilium models pull`")
        model = str(folder)
    elif model.lower().endswith(".gguf"):
        say(wire.Stage("conversion"))

    # Only now, because this loads torch.
    from engine.engine import LocalEngine
    from engine.models.weights import folder_of

    config = EngineConfig(
        model=await asyncio.to_thread(folder_of, model, Path(settings.models_cache)),
        dtype=settings.dtype,
        device=settings.device,
        device_bytes=settings.device_bytes,
        vision_device=settings.vision_device,
        vision_dtype=settings.vision_dtype,
        deterministic=settings.deterministic,
        threads=settings.threads,
        max_batch=settings.max_batch,
        max_waiting=settings.max_waiting,
        max_context=settings.max_context,
        kv_budget_bytes=settings.kv_budget_bytes,
        kv_ram_bytes=settings.kv_ram_bytes,
        kv_folder=settings.kv_folder,
        kv_disk_bytes=settings.kv_disk_bytes,
        kv_disk_floor_bytes=settings.kv_disk_floor_bytes,
    )
    sees = _perception(settings) if settings.has_perception else None
    return await LocalEngine.load(config, sees, lambda stage: say(wire.Stage(stage)))


def _perception(settings: EngineSettings) -> Sees:
    from engine.perception.config import PerceptionConfig
    from engine.perception.service import Perception

    speech = settings.speech_model
    if embedded := TABLE.get(speech):
        # Not pulled yet is no reason not to start: recordings are answered with what to do.
        speech = str(embedded.folder(Path(settings.models_cache)))
    chosen = {"speech_model": speech, **settings.perception}
    return Perception(msgspec.convert(chosen, PerceptionConfig))


async def _wait_for_parent(stop: asyncio.Event) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(4096):
        pass
    stop.set()


def main() -> int:
    """Run the process; the exit status is 1 when the engine could not start."""
    parser = argparse.ArgumentParser(prog="engine.process")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--settings", required=True, help="EngineSettings as JSON")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    # Ctrl-C reaches the whole terminal; the parent decides when the engine ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = msgspec.json.decode(arguments.settings, type=EngineSettings)
    try:
        asyncio.run(run(arguments.socket, settings))
    except (FileNotFoundError, UnsupportedModel) as error:
        say(wire.StartFailed(str(error)))
        return 1
    # The border of the process: the operator gets one sentence, the log the rest.
    except Exception as error:
        log.exception("the engine ended")
        reason = " ".join(str(error).split())[:MAX_REASON_CHARS]
        say(wire.StartFailed(f"{type(error).__name__}: {reason}"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
