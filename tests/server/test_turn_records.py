"""Turn records are kept beside the log."""

from __future__ import annotations

from msgspec.structs import replace

from server.turn_records import SqliteTurnRecords, TurnRecord


async def test_a_record_is_kept_whole_and_a_later_one_replaces_it(database):
    records = SqliteTurnRecords(database)
    assert await records.find("r", "t") is None
    first = TurnRecord(turn="t", model="m", prompt="p", prompt_sha256="0")
    await records.keep("r", first)
    await records.keep("s", first)
    last = replace(first, text="x", token_ids=(1, 2), finish="stop")
    await records.keep("r", last)
    assert await records.find("r", "t") == last
    assert await records.find("s", "t") == first
