"""Turn records in Redis."""

from __future__ import annotations

from msgspec.structs import replace

from server.redis_link import RedisLink
from server.turn_records import TurnRecord
from server.turn_records_redis import RedisTurnRecords


async def test_a_record_is_kept_whole_and_a_later_one_replaces_it(redis):
    link = RedisLink(redis.url)
    records = RedisTurnRecords(link)
    assert await records.find("r", "t") is None
    first = TurnRecord(turn="t", model="m", prompt="p", prompt_sha256="0")
    await records.keep("r", first)
    await records.keep("s", first)
    last = replace(first, text="x", token_ids=(1, 2), finish="stop")
    await records.keep("r", last)
    assert await records.find("r", "t") == last
    assert await records.find("s", "t") == first
    await link.close()
