"""Numbers for the operator, each with the question it answers; the same from every worker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from engine.api import Engine, EngineError, Stats
from server.background import Background
from server.broker import Broker
from server.hub import Hub
from server.turns import Turns

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WRITE_S = 0.5

_QUESTIONS = {
    "consilium_connections": "Open sockets",
    "consilium_members": "Sockets that are in a room",
    "consilium_rooms": "Rooms loaded, once for each process that has them",
    "consilium_turns_running": "Turns not ended yet",
    "consilium_tasks": "Background tasks",
    "consilium_proposals_waiting": "Acts that wait for the log",
    "consilium_buses_up": "Processes that hear the others",
    "consilium_notes_dropped": "Messages between processes that were lost here",
}


def numbers_file(folder: Path, worker: int) -> Path:
    """Where a worker writes its numbers."""
    return folder / f"numbers-{worker}.json"


class SharedNumbers:
    """The numbers of the workers of one machine, in a file each: at most `WRITE_S` old."""

    def __init__(self, folder: Path, worker: int) -> None:
        self._folder = folder
        self._own = numbers_file(folder, worker)

    async def write_until_cancelled(self, own: Callable[[], dict[str, float]]) -> None:
        """Tell the other workers this one's numbers, again and again."""
        while True:
            unfinished = self._own.with_suffix(".new")
            unfinished.write_bytes(msgspec.json.encode(own()))
            os.replace(unfinished, self._own)
            await asyncio.sleep(WRITE_S)

    def of_others(self) -> list[dict[str, float]]:
        """Read what the other workers told; one that has just died is left out."""
        told = []
        for path in self._folder.glob(numbers_file(self._folder, 0).name.replace("0", "*")):
            with suppress(FileNotFoundError):
                if path != self._own:
                    told.append(msgspec.json.decode(path.read_bytes(), type=dict[str, float]))
        return told


class HouseCollector(Collector):
    """Reads gauges when it is asked; nothing is counted on the way of a datum."""

    def __init__(
        self,
        hub: Hub,
        turns: Turns,
        background: Background,
        broker: Broker,
        numbers: SharedNumbers | None,
    ) -> None:
        self._hub = hub
        self._turns = turns
        self._background = background
        self._broker = broker
        self._numbers = numbers

    def own(self) -> dict[str, float]:
        """The numbers of this process."""
        hosted = list(self._hub.rooms())
        return {
            "consilium_connections": len(self._hub.connections),
            "consilium_members": sum(len(each.room.members) for each in hosted),
            "consilium_rooms": len(hosted),
            "consilium_turns_running": len(self._turns),
            "consilium_tasks": len(self._background),
            "consilium_proposals_waiting": sum(len(each.room) for each in hosted),
            "consilium_buses_up": float(self._broker.is_up),
            "consilium_notes_dropped": self._broker.notes_dropped,
        }

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges of this moment, summed over the workers."""
        told = [self.own(), *(self._numbers.of_others() if self._numbers is not None else [])]
        for name, question in _QUESTIONS.items():
            total = sum(each.get(name, 0.0) for each in told)
            yield GaugeMetricFamily(name, question, value=total)


class MetricsPage:
    """`/metrics` over one registry, and what the engine of this machine says of itself."""

    def __init__(self, registry: CollectorRegistry, engine: Engine) -> None:
        self._registry = registry
        self._engine = engine

    async def show(self, request: Request) -> Response:
        """Render everything in Prometheus' text format; an engine that is away says nothing."""
        text = generate_latest(self._registry)
        with suppress(EngineError):
            registry = CollectorRegistry(auto_describe=False)
            registry.register(_EngineCollector(await self._engine.stats()))
            text += generate_latest(registry)
        return Response(text, media_type=CONTENT_TYPE)


class _EngineCollector(Collector):
    """One reading of an engine's numbers; every worker asks the same engine."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """Yield its gauges and counters under their own names."""
        for name, value in sorted(self._stats.gauges.items()):
            yield GaugeMetricFamily(f"consilium_engine_{name}", "Engine, now", value=value)
        for name, value in sorted(self._stats.counters.items()):
            yield CounterMetricFamily(
                f"consilium_engine_{name}", "Engine, since its start", value=value
            )
