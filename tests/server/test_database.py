"""Faults of the store are one error, and then nothing happened."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from server.database import Database
from server.log import LogUnavailable


def insert(number: int):
    return lambda db: db.execute("INSERT INTO probes VALUES (?, 0)", (number,)).close()


async def count(database: Database) -> int:
    return await database.read(lambda db: db.execute("SELECT count(*) FROM probes").fetchone()[0])


async def test_writes_that_wait_together_share_a_commit(database):
    commits: list[str] = []
    await database.write(lambda db: db.set_trace_callback(commits.append))
    await asyncio.gather(*(database.write(insert(n)) for n in range(50)))
    assert await count(database) == 50
    assert commits.count("COMMIT") < 25


async def test_a_write_is_synchronous_and_in_the_write_ahead_log(database):
    pragmas = await database.write(
        lambda db: (
            db.execute("PRAGMA journal_mode").fetchone()[0],
            db.execute("PRAGMA synchronous").fetchone()[0],
        )
    )
    assert pragmas == ("wal", 2)


async def test_a_fault_in_one_work_fails_that_work_alone(database):
    def fail(db: sqlite3.Connection) -> None:
        insert(7)(db)
        raise ValueError("ours")

    results = await asyncio.gather(
        database.write(insert(1)),
        database.write(fail),
        database.write(insert(2)),
        return_exceptions=True,
    )
    assert isinstance(results[1], ValueError)
    assert await count(database) == 2


async def test_a_full_disk_is_unavailable_and_nothing_is_half(database):
    await database.write(insert(1))
    pages = "PRAGMA max_page_count = 20"
    await database.write(lambda db: db.execute(pages).close())

    def much(db: sqlite3.Connection) -> None:
        insert(2)(db)
        db.execute("INSERT INTO snapshots VALUES ('r', 1, 'e', ?)", (b"x" * 10**6,))

    with pytest.raises(LogUnavailable):
        await database.write(much)
    assert await count(database) == 1
    await database.write(insert(3))


async def test_a_locked_file_is_unavailable_and_good_again_afterwards(database, tmp_path):
    await database.write(insert(1))
    other = sqlite3.connect(tmp_path / "log.sqlite3", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LogUnavailable):
        await database.probe()
    other.execute("COMMIT")
    other.close()
    await database.probe()


async def test_a_file_that_is_no_database_is_unavailable(tmp_path):
    path = tmp_path / "torn.sqlite3"
    path.write_bytes(b"this is not SQLite" * 1000)
    database = Database(path)
    with pytest.raises(LogUnavailable):
        await database.probe()
    with pytest.raises(LogUnavailable):
        await count(database)
    await database.close()


async def test_too_many_waiting_writes_are_refused_at_once(tmp_path):
    database = Database(tmp_path / "log.sqlite3", max_waiting=2)
    results = await asyncio.gather(
        *(database.write(insert(n)) for n in range(500)), return_exceptions=True
    )
    refused = [each for each in results if isinstance(each, LogUnavailable)]
    assert refused and await count(database) == 500 - len(refused)
    await database.close()
    with pytest.raises(LogUnavailable):
        await database.probe()
