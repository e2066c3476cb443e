"""One SQLite file: writes that are on the disk when they return, gathered into few commits."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from server.log import LogUnavailable

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]

_GROUP = 64
_SCHEMA = """
CREATE TABLE IF NOT EXISTS rooms (
    room TEXT PRIMARY KEY, epoch TEXT NOT NULL, head INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    room TEXT NOT NULL, seq INTEGER NOT NULL, epoch TEXT NOT NULL,
    participant TEXT NOT NULL, op_id TEXT NOT NULL, frame BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS events_by_seq ON events (room, seq);
CREATE UNIQUE INDEX IF NOT EXISTS events_by_act ON events (room, participant, op_id)
    WHERE op_id != '';
CREATE TABLE IF NOT EXISTS snapshots (
    room TEXT NOT NULL, seq INTEGER NOT NULL, epoch TEXT NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (room, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS turn_records (
    room TEXT NOT NULL, turn TEXT NOT NULL, record BLOB NOT NULL, PRIMARY KEY (room, turn)
);
CREATE TABLE IF NOT EXISTS probes (id INTEGER PRIMARY KEY, beat INTEGER NOT NULL);
"""


class Database:
    """A file that one thread writes and another reads.

    `write` returns after a commit with `synchronous=FULL`: what it did survives a power cut.
    Writes that wait at the same time share one commit. Every fault of the store (locked, full,
    damaged, closed) is `LogUnavailable`, and then nothing of the work happened.
    """

    def __init__(self, path: Path, *, busy_timeout_s: float = 2.0, max_waiting: int = 4096) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._works: queue.Queue[tuple[Work, Future[Any]] | None] = queue.Queue(max_waiting)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="log-read")
        self._reading: sqlite3.Connection | None = None
        self._writer = threading.Thread(target=self._write_until_closed, name="log-write")
        self._writer.daemon = True
        self._writer.start()
        self._is_closed = False

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in a transaction that is durable when this returns."""
        if self._is_closed:
            raise LogUnavailable("the log is closed")
        done: Future[T] = Future()
        try:
            self._works.put_nowait((work, done))
        except queue.Full:
            raise LogUnavailable("too many writes wait") from None
        # Shielded: a caller that is cancelled does not take back what others share a commit with.
        return await asyncio.shield(asyncio.wrap_future(done))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` on everything committed so far."""
        if self._is_closed:
            raise LogUnavailable("the log is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, self._read, work)

    async def probe(self) -> None:
        """Write and commit a trifle; raises `LogUnavailable` when that cannot be done now."""
        await self.write(
            lambda db: db.execute(
                "INSERT INTO probes VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET beat = beat + 1"
            ).close()
        )

    async def close(self) -> None:
        """Finish the writes that wait and let go of the file."""
        if self._is_closed:
            return
        self._is_closed = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._works.put, None)
        await loop.run_in_executor(None, self._writer.join)
        await loop.run_in_executor(self._reader, self._close_reading)
        self._reader.shutdown()

    # -- the reading thread ---------------------------------------------------------------------

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._reading is None:
                self._reading = self._open()
            return work(self._reading)
        except sqlite3.Error as error:
            self._close_reading()
            raise LogUnavailable(f"the log cannot be read: {error}") from error

    def _close_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    # -- the writing thread ---------------------------------------------------------------------

    def _write_until_closed(self) -> None:
        db: sqlite3.Connection | None = None
        is_open = True
        while is_open:
            group, is_open = self._next_group()
            if not group:
                continue
            try:
                db = db if db is not None else self._open()
                self._commit(db, group)
            except (sqlite3.Error, OSError) as error:
                for _, done in group:
                    if not done.done():
                        done.set_exception(LogUnavailable(f"the log cannot be written: {error}"))
                if db is not None:
                    db.close()
                    db = None
        if db is not None:
            db.close()

    def _next_group(self) -> tuple[list[tuple[Work, Future[Any]]], bool]:
        group: list[tuple[Work, Future[Any]]] = []
        item = self._works.get()
        while item is not None:
            group.append(item)
            if len(group) == _GROUP:
                return group, True
            try:
                item = self._works.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, db: sqlite3.Connection, group: list[tuple[Work, Future[Any]]]) -> None:
        results: list[tuple[Future[Any], Any]] = []
        db.execute("BEGIN IMMEDIATE")
        for work, done in group:
            # From here on nobody can take the work back, so its result can always be set.
            if not done.set_running_or_notify_cancel():
                continue
            db.execute("SAVEPOINT work")
            try:
                results.append((done, work(db)))
            except sqlite3.Error:
                raise
            except Exception as error:
                # The border of this thread: a fault in one work fails that work alone.
                db.execute("ROLLBACK TO work")
                done.set_exception(error)
            db.execute("RELEASE work")
        db.execute("COMMIT")
        for done, result in results:
            done.set_result(result)

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(
            self._path,
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.executescript(_SCHEMA)
        except sqlite3.Error:
            db.close()
            raise
        return db
