"""The connections to Redis, and what has to be true of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from server.config import BadSettings
from server.log import LogUnavailable

log = structlog.get_logger(__name__)

OLDEST_VERSION = (7, 0)
MAX_CONNECTIONS = 32
CONNECT_TIMEOUT_S = 2.0
COMMAND_TIMEOUT_S = 5.0


def key(room: str, what: str) -> str:
    """Name a key of a room; the hash tag puts all of a room into one slot of a cluster."""
    return f"consilium:{{{room}}}:{what}"


def channel(room: str) -> str:
    """Name the channel on which a room's processes hear each other."""
    return key(room, "bus")


@contextmanager
def faults() -> Iterator[None]:
    """Turn what goes wrong with Redis into `LogUnavailable`."""
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise LogUnavailable(f"Redis: {error or type(error).__name__}") from error


class RedisLink:
    """One Redis; `check` before anything else."""

    def __init__(self, url: str) -> None:
        self._url = url
        # One repetition, because a connection of the pool may be of before a restart; every
        # command given here may be repeated.
        # `Any`: redis-py types every answer as bytes or text; `decode_responses` is off here.
        self.client: Any = Redis(
            connection_pool=BlockingConnectionPool.from_url(
                url,
                max_connections=MAX_CONNECTIONS,
                timeout=COMMAND_TIMEOUT_S,
                socket_timeout=COMMAND_TIMEOUT_S,
                socket_connect_timeout=CONNECT_TIMEOUT_S,
                retry=Retry(NoBackoff(), 1),
                protocol=2,
            )
        )
        self.is_durable = False
        self.durability = "Redis was not asked yet"

    def subscriber(self) -> Redis:
        """Make a connection that only listens.

        Without a read timeout, which redis-py 8 sets to 5 s, and without redis-py's own
        reconnecting: whoever listens has to know that it missed something.
        """
        return Redis.from_url(
            self._url,
            socket_timeout=None,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )

    async def check(self) -> None:
        """Raise `BadSettings` when there is no Redis that can be used."""
        try:
            server = await self.client.info("server")
            await self.learn_durability()
        except (RedisError, OSError, TimeoutError) as error:
            raise BadSettings(f"Redis does not answer: {error}") from None
        version = str(server["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_VERSION:
            raise BadSettings(f"Redis {version} is too old: 7.0 or newer is needed")

    async def learn_durability(self) -> None:
        """Ask whether what Redis answers is on its disk; a restart may have changed it."""
        settings = await self._persistence_settings()
        policy = settings.get("appendfsync", "unknown")
        state = await self.client.info("persistence")
        is_on = bool(state["aof_enabled"]) and state["aof_last_write_status"] == "ok"
        was_durable, self.is_durable = self.is_durable, is_on and policy == "always"
        aof = "on" if is_on else "off"
        self.durability = "" if self.is_durable else f"Redis: AOF {aof}, appendfsync {policy}"
        if was_durable and not self.is_durable:
            log.warning("acknowledged does not mean on disk", detail=self.durability)

    async def _persistence_settings(self) -> dict[str, str]:
        try:
            settings: dict[str, str] = await self.client.config_get("appendfsync")
            return settings
        except RedisError:
            # Where CONFIG is forbidden nothing is proven.
            await self.client.ping()
            return {}

    async def close(self) -> None:
        """Let go of all connections."""
        await self.client.aclose()
        await self.client.connection_pool.aclose()
