"""What only the SQLite log has to prove; its contract is in `tests/contracts/test_log.py`."""

from __future__ import annotations

import sqlite3

from protocol.room import RoomState
from server.log import Gap, Head
from tests.contracts.test_log import draft


async def test_a_hole_in_the_table_is_a_gap_and_not_a_shorter_history(room_log, tmp_path):
    await room_log.append("r", [draft(str(number)) for number in range(5)])
    head = await room_log.head("r")
    other = sqlite3.connect(tmp_path / "log.sqlite3")
    with other:
        other.execute("DELETE FROM events WHERE seq = 3")
    other.close()
    assert await room_log.since("r", head.epoch, 0, 100) == Gap(head)


async def test_only_the_newest_snapshots_are_kept(room_log, database):
    (first,) = await room_log.append("r", [draft("a")])
    head = Head(first.event.epoch, first.event.seq)
    for seq in range(1, 6):
        await room_log.store_snapshot("r", RoomState(head.epoch, seq).snapshot())
    count = "SELECT count(*) FROM snapshots"
    assert await database.read(lambda db: db.execute(count).fetchone()[0]) == 2
    assert (await room_log.snapshot("r")).seq == 5


async def test_a_snapshot_of_another_epoch_is_not_used(room_log):
    await room_log.append("r", [draft("a")])
    await room_log.store_snapshot("r", RoomState("another", 3).snapshot())
    assert await room_log.snapshot("r") is None
