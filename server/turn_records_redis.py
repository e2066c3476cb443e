"""Turn records in Redis, beside the log."""

from __future__ import annotations

import msgspec

from server.redis_link import RedisLink, faults, key
from server.turn_records import TurnRecord


class RedisTurnRecords:
    """`TurnRecords` in one hash a room."""

    def __init__(self, link: RedisLink) -> None:
        self._redis = link.client

    async def keep(self, room: str, record: TurnRecord) -> None:
        """See `TurnRecords.keep`."""
        with faults():
            raw = msgspec.msgpack.encode(record)
            await self._redis.hset(key(room, "turns"), record.turn, raw)

    async def find(self, room: str, turn: str) -> TurnRecord | None:
        """See `TurnRecords.find`."""
        with faults():
            raw = await self._redis.hget(key(room, "turns"), turn)
        return None if raw is None else msgspec.msgpack.decode(raw, type=TurnRecord)
