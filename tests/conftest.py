"""Fixtures for everything that needs a room or a server; all of it real."""

from __future__ import annotations

import pytest

from server.background import Background
from server.config import Settings
from server.database import Database
from server.log_sqlite import SqliteLog
from server.room import Room
from tests.support.redis_server import RedisServer
from tests.support.running import Running


class Clock:
    """A clock that goes on only when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def database(tmp_path):
    opened = Database(tmp_path / "log.sqlite3", busy_timeout_s=0.2)
    yield opened
    await opened.close()


@pytest.fixture
def room_log(database):
    return SqliteLog(database)


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory):
    """A real Redis with AOF for tests that leave it alone; each empties it before."""
    running = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield running
    running.stop()


@pytest.fixture
def redis(shared_redis):
    """An empty Redis."""
    shared_redis.empty()
    return shared_redis


@pytest.fixture
def own_redis(tmp_path):
    """A Redis that a test may kill."""
    running = RedisServer(tmp_path / "redis").start()
    yield running
    running.stop()


@pytest.fixture
async def background():
    scope = Background()
    yield scope
    await scope.close()


@pytest.fixture
async def room(room_log, background):
    """A room with its worker."""
    hosted = Room("ward-7", room_log, background, snapshot_events=1_000)
    background.spawn(hosted.run(), "room")
    return hosted


@pytest.fixture
async def start(tmp_path):
    """Start servers in this process, on port 0, each with its own settings and engine."""
    started: list[Running] = []

    async def begin(engine=None, **settings) -> Running:
        settings.setdefault("folder", tmp_path / f"house-{len(started)}")
        running = await Running.start(Settings(port=0, **settings), engine)
        started.append(running)
        return running

    yield begin
    for running in reversed(started):
        await running.stop()


@pytest.fixture
def nodes(start, redis, tmp_path):
    """Start servers that meet in one Redis and share a data folder, each with its own engine."""

    async def begin(*engines, **settings) -> list[Running]:
        settings.setdefault("folder", tmp_path / "shared")
        settings.setdefault("redis", redis.url)
        return [await start(engine, **settings) for engine in engines]

    return begin


@pytest.fixture
async def server(start):
    """A server whose engine never comes."""
    return await start()
