"""Numbers for the operator, each with the question it answers."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from server.background import Background
from server.hub import Hub
from server.turns import Turns

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class HouseCollector(Collector):
    """Reads gauges when it is asked; nothing is counted on the way of a datum."""

    def __init__(self, hub: Hub, turns: Turns, background: Background) -> None:
        self._hub = hub
        self._turns = turns
        self._background = background

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges of this moment."""
        hosted = list(self._hub.rooms())
        members = sum(len(each.room.members) for each in hosted)
        yield _gauge("consilium_connections", "Open sockets", len(self._hub.connections))
        yield _gauge("consilium_members", "Sockets that are in a room", members)
        yield _gauge("consilium_rooms", "Rooms loaded in this process", len(hosted))
        yield _gauge("consilium_turns_running", "Turns not ended yet", len(self._turns))
        yield _gauge("consilium_tasks", "Background tasks", len(self._background))
        waiting = sum(each.room.waiting for each in hosted)
        yield _gauge("consilium_proposals_waiting", "Acts that wait for the log", waiting)


def _gauge(name: str, question: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, question, value=value)


class MetricsPage:
    """`/metrics` over one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    async def show(self, request: Request) -> Response:
        """Render the registry in Prometheus' text format."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE)
