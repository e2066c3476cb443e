"""The engine in this process: the loop's turns and perception's media behind the contract."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

from engine.api import (
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
from engine.config import EngineConfig
from engine.language import LanguageCheck
from engine.loop import Loop
from engine.models.guide import BadSchema
from engine.models.loaded import LoadedModel

log = logging.getLogger(__name__)

# What the model answered so long ago still stands: everybody asks each second, and an idle engine
# that computed a token for each took a fifth of a core.
PROBE_KEPT_S = 5.0
# A probe waits for the step in progress and computes one token; longer means it hangs.
PROBE_TIMEOUT_S = 5.0
# Beyond this the choice is no longer the model's.
MAX_TEMPERATURE = 5.0
MAX_REPETITION_PENALTY = 10.0
MAX_PENALTY = 2.0
TERMINAL = (TurnDone, TurnCancelled, TurnFailed)


class Sees(Protocol):
    """What the engine needs of perception (`engine.perception.service.Perception`)."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def open(self, media: Media) -> AsyncIterator[Observation]: ...
    async def feed(self, media: str, chunk: bytes, pts_us: int) -> None: ...
    async def close(self, media: str) -> None: ...
    def stats(self) -> Stats: ...
    def is_reading(self) -> bool: ...
    def stand_still(self, is_wanted: bool) -> None: ...


class LocalEngine:
    """An `Engine` whose model runs in a thread of this process."""

    def __init__(self, config: EngineConfig, model: LoadedModel, sees: Sees | None = None) -> None:
        self._config = config
        self._model = model
        self._sees = sees
        self._loop = Loop(config, model, sees)
        self._language = LanguageCheck(model.languages) if model.languages else None
        self._warming: asyncio.Task[None] | None = None
        self._answered_at = -math.inf

    @classmethod
    async def load(
        cls,
        config: EngineConfig,
        sees: Sees | None = None,
        progress: Callable[[str], None] = lambda stage: None,
    ) -> LocalEngine:
        """Load the model in a thread and return an engine that is not started yet."""
        model = await asyncio.to_thread(LoadedModel.load, config, progress)
        return cls(config, model, sees)

    async def start(self) -> None:
        """Begin to answer; call once."""
        self._loop.start()
        if self._language is not None:
            # Its tables are read beside the rest of the start, not in front of the first answer.
            self._warming = asyncio.create_task(asyncio.to_thread(self._language.load))
        if self._sees is not None:
            await self._sees.start()

    async def stop(self) -> None:
        """End every turn and media item with its terminal event."""
        if self._warming is not None:
            await self._warming
        await asyncio.to_thread(self._loop.stop)
        if self._sees is not None:
            await self._sees.stop()

    async def submit(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        """See `engine.api.Engine.submit`."""
        if refusal := self._refusal(turn):
            yield refusal
            return
        guide = None
        if turn.json_schema is not None:
            try:
                guide = await asyncio.to_thread(self._model.guides.compile, turn.json_schema)
            except BadSchema as error:
                code = EngineCode.SCHEMA_UNSUPPORTED
                yield TurnFailed(turn=turn.id, code=code, message=str(error))
                return
        here = asyncio.get_running_loop()
        # Bounded by `max_new_tokens`: a turn has at most a few events a token.
        events: asyncio.Queue[TurnEvent] = asyncio.Queue()

        def emit(event: TurnEvent) -> None:
            # A loop that was closed under its turns has nobody left who could be told.
            with suppress(RuntimeError):
                here.call_soon_threadsafe(events.put_nowait, event)

        try:
            self._loop.submit(turn, emit, guide)
        except EngineError as error:
            yield TurnFailed(turn=turn.id, code=error.code, message=error.message)
            return
        try:
            while True:
                event = await events.get()
                yield event
                if isinstance(event, TERMINAL):
                    return
        finally:
            self._loop.cancel(turn.id)

    async def cancel(self, turn: str) -> bool:
        """See `engine.api.Engine.cancel`."""
        return self._loop.cancel(turn)

    def open(self, media: Media) -> AsyncIterator[Observation]:
        """See `engine.api.Engine.open`; the look begins at once, so `feed` may follow."""
        if self._sees is None:
            return _blind(media)
        return self._sees.open(media)

    async def feed(self, media: str, chunk: bytes, pts_us: int) -> None:
        """See `engine.api.Engine.feed`."""
        if self._sees is not None:
            await self._sees.feed(media, chunk, pts_us)

    async def close(self, media: str) -> None:
        """See `engine.api.Engine.close`."""
        if self._sees is not None:
            await self._sees.close(media)

    async def prefetch(self, session: str) -> None:
        """See `engine.api.Engine.prefetch`; returns at once, what is on disk comes meanwhile."""
        self._loop.prefetch(session)

    async def drop(self, session: str) -> None:
        """See `engine.api.Engine.drop`; returns when no file of it is left."""
        files: Future[None] = await asyncio.wrap_future(self._loop.drop(session))
        await asyncio.wrap_future(files)

    async def health(self) -> Health:
        """Let the model compute one token; raises `EngineError` when it does not in time.

        That it answered is believed for `PROBE_KEPT_S`.
        """
        answers = time.monotonic() - self._answered_at < PROBE_KEPT_S
        if not answers:
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    answers = await asyncio.wrap_future(self._loop.probe())
            # Whatever the model raises means the same to whoever asks.
            except Exception as fault:
                log.warning("the model does not answer: %s", type(fault).__name__)
                raise EngineError(EngineCode.ENGINE_LOST, "The model does not answer.") from fault
            if answers:
                self._answered_at = time.monotonic()
        return Health(
            ready=answers,
            model=self._model.name,
            detail="the model answers" if answers else "the model computes no finite numbers",
            dtype=self._config.dtype,
            device=self._config.device,
            deterministic=self._model.backend.is_deterministic,
        )

    async def stats(self) -> Stats:
        """See `engine.api.Engine.stats`."""
        mind = self._loop.stats()
        if self._sees is None:
            return mind
        eyes = self._sees.stats()
        return Stats(
            gauges={**mind.gauges, **eyes.gauges}, counters={**mind.counters, **eyes.counters}
        )

    def _refusal(self, turn: Turn) -> TurnFailed | None:
        """Return why a turn cannot be run at all, before it takes a place."""
        if fault := self._fault(turn):
            return TurnFailed(turn=turn.id, code=EngineCode.INTERNAL, message=fault)
        question = next((m.text for m in reversed(turn.messages) if m.role == "user"), "")
        if self._language is not None and not self._language.knows(question):
            known = ", ".join(self._model.languages or ())
            return TurnFailed(
                turn=turn.id,
                code=EngineCode.LANGUAGE_UNSUPPORTED,
                message=f"The loaded model knows only: {known}. "
                "Choose a model for this language with the setting --model.",
            )
        return None

    def _fault(self, turn: Turn) -> str | None:
        """Return what is wrong with the turn's own numbers."""
        if "\0" in turn.tenant + turn.session:
            return "The names of tenant and session must not contain NUL."
        if not turn.messages:
            return "The turn has no question."
        if not 1 <= turn.max_new_tokens <= self._config.max_new_tokens:
            return f"max_new_tokens must be 1 to {self._config.max_new_tokens}."
        if not 0 <= turn.temperature <= MAX_TEMPERATURE:
            return f"temperature must be 0 to {MAX_TEMPERATURE}."
        if not 0 < turn.top_p <= 1:
            return "top_p must be above 0 and at most 1."
        if turn.top_k < 0 or not 0 <= turn.min_p <= 1:
            return "top_k must not be negative, and min_p must be 0 to 1."
        if not 0 < turn.repetition_penalty <= MAX_REPETITION_PENALTY:
            return f"repetition_penalty must be above 0 and at most {MAX_REPETITION_PENALTY}."
        penalties = (turn.presence_penalty, turn.frequency_penalty)
        if not all(-MAX_PENALTY <= penalty <= MAX_PENALTY for penalty in penalties):
            return (
                f"presence_penalty and frequency_penalty must be -{MAX_PENALTY} to {MAX_PENALTY}."
            )
        return None


async def _blind(media: Media) -> AsyncIterator[Observation]:
    yield MediaFailed(
        media=media.id,
        code=EngineCode.MEDIA_UNSUPPORTED,
        message="This engine runs without perception.",
    )
