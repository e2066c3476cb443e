"""Whether the server can do its work now: the truth, and a recent copy of it for heartbeats."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse

from engine.api import Engine, EngineError
from server.log import LogUnavailable
from server.store import Store

WATCH_S = 1.0
PROBE_TIMEOUT_S = 5.0


class EngineWatch:
    """Asks the engine now and then, so that heartbeats need not."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_ready = False
        self.model = ""
        self.is_deterministic = False
        self.detail = "the engine was not asked yet"

    async def ask(self) -> None:
        """Ask the model's own process now."""
        try:
            health = await self._engine.health()
        except EngineError as error:
            self.is_ready, self.detail = False, error.message
        else:
            self.is_ready, self.detail = health.ready, health.detail
            self.model = health.model
            self.is_deterministic = health.deterministic

    async def watch_until_cancelled(self) -> None:
        """Ask again and again."""
        while True:
            await self.ask()
            await asyncio.sleep(WATCH_S)


class Health:
    """The endpoints that operators and `make run` ask."""

    def __init__(self, watch: EngineWatch, store: Store) -> None:
        self._watch = watch
        self._store = store
        self.is_draining = False

    async def healthz(self, request: Request) -> JSONResponse:
        """Say that the process serves requests, and what is known; asks nobody else."""
        engine = {"deterministic": self._watch.is_deterministic}
        return JSONResponse({"status": "ok", "engine": engine})

    async def readyz(self, request: Request) -> JSONResponse:
        """Say whether the model answers and the log can be written, from asking both."""
        await self._watch.ask()
        log = await self._log_detail()
        is_heard = self._store.broker.is_up
        is_ready = self._watch.is_ready and log is None and is_heard and not self.is_draining
        not_durable = self._store.why_not_durable()
        body = {
            "ready": is_ready,
            "draining": self.is_draining,
            "engine": {
                "ready": self._watch.is_ready,
                "model": self._watch.model,
                "detail": self._watch.detail,
            },
            "log": {
                "ready": log is None,
                "durable": not not_durable,
                "detail": log or not_durable,
            },
            "bus": {"ready": is_heard},
        }
        return JSONResponse(body, status_code=200 if is_ready else 503)

    async def _log_detail(self) -> str | None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._store.log.probe()
        except LogUnavailable as error:
            return str(error)
        except TimeoutError:
            return f"the log did not write within {PROBE_TIMEOUT_S:.0f} s"
        return None
