"""An engine that says what a test tells it to, when the test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from engine import api

DONE_TIMINGS = {"queued": 0.0, "first_token": 0.1, "total": 0.2}


class ScriptedEngine:
    """An `Engine` whose turns and looks are queues that a test fills; None ends one in silence."""

    def __init__(self) -> None:
        self.turns: dict[str, asyncio.Queue[api.TurnEvent | None]] = {}
        self.looks: dict[str, asyncio.Queue[api.Observation | None]] = {}
        self.asked: list[api.Turn] = []
        self.opened: list[api.Media] = []
        self.closed_turns: list[str] = []
        self.prefetched: list[str] = []
        self.ready = True
        self._changed = asyncio.Event()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until what was asked of it fulfils a condition."""
        async with asyncio.timeout(5):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    def script(self, turn: str) -> asyncio.Queue[api.TurnEvent | None]:
        """The events of a turn, to be filled."""
        return self.turns.setdefault(turn, asyncio.Queue(1_000))

    def look(self, media: str) -> asyncio.Queue[api.Observation | None]:
        """The observations of a media item, to be filled."""
        return self.looks.setdefault(media, asyncio.Queue(1_000))

    def says(self, turn: str, *texts: str, done: bool = True) -> None:
        """Script an answer from its texts."""
        script = self.script(turn)
        script.put_nowait(
            api.TurnStarted(
                turn=turn, model="m", prompt="p", prompt_tokens=1, cached_tokens=0, sight="none"
            )
        )
        offset = 0
        for text in texts:
            script.put_nowait(api.TurnDelta(turn=turn, offset=offset, text=text))
            offset += len(text)
        if done:
            script.put_nowait(
                api.TurnDone(
                    turn=turn,
                    text="".join(texts),
                    token_ids=tuple(range(len(texts))),
                    finish="stop",
                    prompt_tokens=1,
                    cached_tokens=0,
                    timings=DONE_TIMINGS,
                )
            )

    async def submit(self, turn: api.Turn) -> AsyncIterator[api.TurnEvent]:
        """See `Engine.submit`."""
        self.asked.append(turn)
        self._changed.set()
        try:
            while (event := await self.script(turn.id).get()) is not None:
                yield event
                if isinstance(event, api.TurnDone | api.TurnFailed | api.TurnCancelled):
                    return
        finally:
            self.closed_turns.append(turn.id)

    async def open(self, media: api.Media) -> AsyncIterator[api.Observation]:
        """See `Engine.open`."""
        self.opened.append(media)
        while (observation := await self.look(media.id).get()) is not None:
            yield observation
            if isinstance(observation, api.Completed | api.MediaFailed):
                return

    async def cancel(self, turn: str) -> bool:
        """See `Engine.cancel`."""
        return False

    async def feed(self, media: str, chunk: bytes, pts_us: int) -> None:
        """See `Engine.feed`."""

    async def close(self, media: str) -> None:
        """See `Engine.close`."""

    async def prefetch(self, session: str) -> None:
        """See `Engine.prefetch`."""
        self.prefetched.append(session)

    async def drop(self, session: str) -> None:
        """See `Engine.drop`."""

    async def health(self) -> api.Health:
        """See `Engine.health`."""
        return api.Health(ready=self.ready, model="m", detail="scripted")

    async def stats(self) -> api.Stats:
        """See `Engine.stats`."""
        return api.Stats()
