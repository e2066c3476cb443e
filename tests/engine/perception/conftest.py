"""One running perception for a test module: its workers load once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from engine.perception.config import PerceptionConfig
from engine.perception.service import Perception


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def perception() -> AsyncIterator[Perception]:
    running = Perception(PerceptionConfig())
    await running.start()
    yield running
    await running.stop()
