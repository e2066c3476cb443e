"""The engine as the web process sees it: the same contract, in a process that may die.

Imports no torch. `EngineClient` starts the engine's process, or connects to one that another
web process started, and brings it back when it is lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from engine import wire
from engine.api import (
    Completed,
    EngineCode,
    EngineError,
    Health,
    Media,
    MediaFailed,
    Observation,
    Stats,
    Turn,
    TurnCancelled,
    TurnDone,
    TurnEvent,
    TurnFailed,
)
from engine.link import Link, Stream
from engine.settings import EngineSettings, default_models_cache

__all__ = ["EngineClient", "EngineSettings", "default_models_cache"]

log = logging.getLogger(__name__)

FIRST_BACK_OFF_S = 0.25
LONGEST_BACK_OFF_S = 10.0
# Whose process it is not only knocks, which costs nothing.
LONGEST_KNOCK_S = 0.5
HEALTH_TIMEOUT_S = 6.0
# A model that answers no probe for this long hangs; only the end of its process ends its turns.
HANGS_AFTER_S = 20.0
STOP_TIMEOUT_S = 5.0
# Threads of torch that spin for long at a barrier stall each other when perception's workers
# want the same cores: with two busy neighbours the slowest step took 112 ms instead of 634 ms,
# and alone nothing changed.
SPIN_COUNT = "30000"
_PACKAGE_ROOT = str(Path(__file__).resolve().parent.parent)


class EngineClient:
    """An `Engine` in another process.

    With `settings` the process is this client's own: started, restarted with back-off, ended by
    `stop`. Without, the client connects to whatever listens on `socket`. Requests that come while
    the engine is away wait for it up to `ready_timeout_s`. `on_stage` gets the stages of each
    start-up, for a progress display.
    """

    def __init__(
        self,
        socket: Path,
        settings: EngineSettings | None = None,
        *,
        ready_timeout_s: float = 30.0,
        hangs_after_s: float = HANGS_AFTER_S,
        on_stage: Callable[[str], None] = lambda stage: None,
    ) -> None:
        self._socket = socket
        self._settings = settings
        self._ready_timeout_s = ready_timeout_s
        self._hangs_after_s = hangs_after_s
        self._on_stage = on_stage
        self._link: Link | None = None
        self._is_up = asyncio.Event()
        # Where the start-up is, and why the engine went away before it.
        self._stage = ""
        self._detail = "it is not up yet"
        self._keeper: asyncio.Task[None] | None = None
        self.pid: int | None = None

    async def start(self) -> None:
        """Begin to bring the engine up and return at once; see `wait_ready`."""
        self._keeper = asyncio.create_task(self._keep(), name="engine-keeper")

    async def wait_ready(self, timeout_s: float) -> None:
        """Return when the model answers; raises `EngineError` when it does not in time."""
        await self._reach(timeout_s)

    async def stop(self) -> None:
        """End the process if it is ours; every open turn and media item fails."""
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None

    # -- the contract ---------------------------------------------------------------------------

    async def submit(self, turn: Turn) -> AsyncIterator[TurnEvent]:
        """See `engine.api.Engine.submit`."""
        try:
            link = await self._reach(self._ready_timeout_s)
            with link.stream() as stream:
                link.write(wire.Submit(stream.call, turn))
                async for reply in stream:
                    assert isinstance(reply, wire.Event), "a turn is answered by its events"
                    stream.is_over = isinstance(reply.event, TurnDone | TurnCancelled | TurnFailed)
                    yield reply.event
                    if stream.is_over:
                        return
        except EngineError as error:
            yield TurnFailed(turn=turn.id, code=error.code, message=error.message)

    def open(self, media: Media) -> AsyncIterator[Observation]:
        """See `engine.api.Engine.open`; asks at once if the engine is there: `feed` may follow."""
        stream = None
        if self._link is not None:
            stream = self._link.stream()
            self._link.write(wire.Open(stream.call, media))
        return self._observe(media, stream)

    async def _observe(self, media: Media, stream: Stream | None) -> AsyncIterator[Observation]:
        try:
            if stream is None:
                link = await self._reach(self._ready_timeout_s)
                stream = link.stream()
                link.write(wire.Open(stream.call, media))
            with stream:
                async for reply in stream:
                    assert isinstance(reply, wire.Observed), "media is answered by observations"
                    stream.is_over = isinstance(reply.observation, Completed | MediaFailed)
                    yield reply.observation
                    if stream.is_over:
                        return
        except EngineError as error:
            yield MediaFailed(media=media.id, code=error.code, message=error.message)

    async def cancel(self, turn: str) -> bool:
        """See `engine.api.Engine.cancel`; a turn of a lost engine has ended already."""
        if self._link is None:
            return False
        reply = await self._link.ask(lambda call: wire.Cancel(call, turn))
        return isinstance(reply, wire.Answered) and reply.found

    async def feed(self, media: str, chunk: bytes, pts_us: int) -> None:
        """See `engine.api.Engine.feed`; raises `EngineError` when the engine is away."""
        await self._now().ask(lambda call: wire.Feed(call, media, chunk, pts_us))

    async def close(self, media: str) -> None:
        """See `engine.api.Engine.close`; media of a lost engine is closed already."""
        if self._link is not None:
            await self._link.ask(lambda call: wire.Close(call, media))

    async def prefetch(self, session: str) -> None:
        """See `engine.api.Engine.prefetch`; a lost engine has nothing to bring near."""
        if self._link is not None:
            await self._link.ask(lambda call: wire.Prefetch(call, session))

    async def drop(self, session: str) -> None:
        """See `engine.api.Engine.drop`; a lost engine has forgotten everything."""
        if self._link is not None:
            await self._link.ask(lambda call: wire.Drop(call, session))

    async def health(self) -> Health:
        """See `engine.api.Engine.health`; does not wait for an engine that is starting."""
        link = self._now()
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                reply = await link.ask(wire.AskHealth)
        except TimeoutError:
            raise EngineError(EngineCode.ENGINE_LOST, "The engine does not answer.") from None
        assert isinstance(reply, wire.IsHealthy)
        return reply.health

    async def stats(self) -> Stats:
        """See `engine.api.Engine.stats`; raises `EngineError` when the engine is away."""
        reply = await self._now().ask(wire.AskStats)
        assert isinstance(reply, wire.HasStats)
        return reply.stats

    # -- the process ----------------------------------------------------------------------------

    def _now(self) -> Link:
        if self._link is None:
            starting = f"; it is starting: {self._stage}" if self._stage else ""
            message = f"The engine is away: {self._detail}{starting}."
            raise EngineError(EngineCode.ENGINE_LOST, message)
        return self._link

    async def _reach(self, timeout_s: float) -> Link:
        try:
            async with asyncio.timeout(timeout_s):
                while self._link is None:
                    await self._is_up.wait()
        except TimeoutError:
            return self._now()
        return self._link

    async def _keep(self) -> None:
        """Bring the engine up again whenever it is lost, ever more slowly while it fails."""
        back_off_s = FIRST_BACK_OFF_S
        longest_s = LONGEST_KNOCK_S if self._settings is None else LONGEST_BACK_OFF_S
        while True:
            try:
                was_up = await self._live()
            except (OSError, wire.BrokenFrame, msgspec.DecodeError) as error:
                was_up, self._detail = False, f"{type(error).__name__}: {error}"
            if was_up:
                back_off_s = FIRST_BACK_OFF_S
            self._stage = ""
            if was_up or self._settings is not None:
                log.warning("engine away (%s), next try in %.2f s", self._detail, back_off_s)
            await asyncio.sleep(back_off_s)
            back_off_s = min(back_off_s * 2, longest_s)

    async def _live(self) -> bool:
        """One life of the engine, from its start to its loss; False when it was never up."""
        if self._settings is None:
            return await self._use()
        process = await self._spawn()
        try:
            return await self._started(process) and await self._use()
        finally:
            self.pid = None
            await _end(process)

    async def _spawn(self) -> asyncio.subprocess.Process:
        path = os.pathsep.join(filter(None, [_PACKAGE_ROOT, os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "engine.process", "--socket", str(self._socket)]
        command += ["--settings", msgspec.json.encode(self._settings).decode()]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"GOMP_SPINCOUNT": SPIN_COUNT, **os.environ, "PYTHONPATH": path},
            # Ctrl-C in a terminal reaches the whole group; the engine is to answer on while the
            # server drains, and ends when its standard input does.
            start_new_session=True,
        )
        self.pid = process.pid
        return process

    async def _started(self, process: asyncio.subprocess.Process) -> bool:
        """Follow the start-up to its end; False when the process did not become ready."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            try:
                stage = msgspec.json.decode(line, type=wire.StartUp)
            except msgspec.DecodeError:
                # A library printed something.
                continue
            match stage:
                case wire.Stage(name=name):
                    self._stage = name
                    self._on_stage(name)
                case wire.Ready():
                    self._stage = ""
                    self._on_stage("ready")
                    return True
                case wire.StartFailed(message=message):
                    self._stage, self._detail = "", message
                    return False
        self._detail = "it ended before it was ready"
        return False

    async def _use(self) -> bool:
        """Connect and stay connected until the engine is lost; False when it was not there."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError as error:
            self._detail = f"nothing listens on {self._socket} ({error.strerror})"
            return False
        link = Link(writer)
        self._link = link
        self._is_up.set()
        watching = asyncio.create_task(self._watch(link))
        try:
            await link.read_until_lost(reader)
        finally:
            watching.cancel()
            self._link = None
            self._is_up.clear()
            self._detail = "its process ended"
            link.lose()
        return True

    async def _watch(self, link: Link) -> None:
        """Give up an engine whose process lives but whose model answers nothing any more."""
        while not link.is_lost:
            await asyncio.sleep(self._hangs_after_s / 4)
            try:
                async with asyncio.timeout(self._hangs_after_s):
                    while not await self._answers(link):  # noqa: ASYNC110
                        await asyncio.sleep(self._hangs_after_s / 20)
            except TimeoutError:
                log.error("the model answers nothing for %.0f s", self._hangs_after_s)
                link.lose()

    async def _answers(self, link: Link) -> bool:
        try:
            return isinstance(await link.ask(wire.AskHealth), wire.IsHealthy)
        except EngineError:
            return link.is_lost


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the pipe the process lives on, and kill it when it does not go."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        log.warning("the engine did not stop in %.0f s and is killed", STOP_TIMEOUT_S)
        process.kill()
        await process.wait()
