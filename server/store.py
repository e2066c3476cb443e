"""Where a server keeps what lasts, and how it hears other servers: one file, or Redis."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from server.background import Background
from server.broker import Broker
from server.broker_memory import MemoryBroker
from server.database import Database
from server.leases import Leases, OwnLeases
from server.log import Log
from server.log_sqlite import SqliteLog
from server.turn_records import SqliteTurnRecords, TurnRecords

if TYPE_CHECKING:
    from server.redis_link import RedisLink


@dataclass(frozen=True, slots=True)
class Store:
    """The contracts that belong together. `start` before use; `why_not_durable` is "" if it is."""

    log: Log
    broker: Broker
    records: TurnRecords
    leases: Leases
    why_not_durable: Callable[[], str]
    start: Callable[[], None]
    close: Callable[[], Awaitable[None]]


def store_for(folder: Path, redis: str | None, background: Background, lease_s: float) -> Store:
    """Build what the settings ask for; nothing is connected before `start`."""
    if redis is None:
        return sqlite_store(folder / "consilium.sqlite3")
    # An extra: without `--redis` the package need not be there.
    from server.redis_link import RedisLink

    return redis_store(RedisLink(redis), background, lease_s)


def sqlite_store(path: Path) -> Store:
    """Keep everything in one file, for one process."""
    database = Database(path)
    return Store(
        log=SqliteLog(database),
        broker=MemoryBroker(),
        records=SqliteTurnRecords(database),
        leases=OwnLeases(),
        why_not_durable=lambda: "",
        start=lambda: None,
        close=database.close,
    )


def redis_store(link: RedisLink, background: Background, lease_s: float) -> Store:
    """Keep everything in Redis, for any number of processes."""
    from server.broker_redis import RedisBroker
    from server.leases_redis import RedisLeases
    from server.log_redis import RedisLog
    from server.turn_records_redis import RedisTurnRecords

    node = secrets.token_hex(8)
    log, leases = RedisLog(link), RedisLeases(link, node, background, lease_s)
    broker = RedisBroker(link, node, background)

    def start() -> None:
        broker.start()
        leases.start()

    async def close() -> None:
        await leases.close()
        await broker.close()
        await log.close()
        await link.close()

    return Store(
        log=log,
        broker=broker,
        records=RedisTurnRecords(link),
        leases=leases,
        why_not_durable=lambda: link.durability,
        start=start,
        close=close,
    )
