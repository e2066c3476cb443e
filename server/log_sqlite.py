"""The room log in one SQLite file, for one server process."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from protocol import codec
from protocol.state import Snapshot
from server.database import Database
from server.log import Act, Appended, Draft, Gap, Head, History, Overtaken

_KEPT_SNAPSHOTS = 2


class SqliteLog:
    """A `Log`; `write` of the database is its durability and its atomicity."""

    is_shared = False

    def __init__(self, database: Database) -> None:
        self._database = database
        self._secret = secrets.token_hex(16)

    async def head(self, room: str) -> Head:
        """See `Log.head`."""
        known = await self._database.read(lambda db: _head(db, room))
        return known if known is not None else self._beginning(room)

    async def append(
        self, room: str, drafts: Sequence[Draft], after: Head | None = None
    ) -> list[Appended]:
        """See `Log.append`."""
        new = self._beginning(room)
        return await self._database.write(lambda db: _append(db, room, drafts, new, after))

    async def find(self, room: str, acts: Iterable[Act]) -> dict[Act, Appended]:
        """See `Log.find`."""
        wanted = list(acts)
        if not wanted:
            return {}
        return await self._database.read(lambda db: _find(db, room, wanted))

    async def since(self, room: str, epoch: str, seq: int, limit: int) -> History | Gap:
        """See `Log.since`."""
        return await self._database.read(
            lambda db: _since(db, room, epoch, seq, limit, None, self._beginning(room))
        )

    async def page(
        self, room: str, epoch: str, seq: int, *, max_events: int, max_bytes: int
    ) -> History | Gap:
        """See `Log.page`."""
        return await self._database.read(
            lambda db: _since(db, room, epoch, seq, max_events, max_bytes, self._beginning(room))
        )

    async def snapshot(self, room: str) -> Snapshot | None:
        """See `Log.snapshot`."""
        return await self._database.read(lambda db: _snapshot(db, room))

    async def store_snapshot(self, room: str, snapshot: Snapshot) -> int:
        """See `Log.store_snapshot`."""
        return await self._database.write(lambda db: _store_snapshot(db, room, snapshot))

    async def rooms(self) -> list[str]:
        """See `Log.rooms`."""
        return await self._database.read(
            lambda db: [room for (room,) in db.execute("SELECT room FROM rooms ORDER BY room")]
        )

    async def probe(self) -> None:
        """See `Log.probe`."""
        await self._database.probe()

    async def close(self) -> None:
        """See `Log.close`."""
        await self._database.close()

    def _beginning(self, room: str) -> Head:
        """Where a room begins: its epoch holds for this process, until its first event keeps it.

        So whoever only looks into rooms, however many, leaves nothing behind.
        """
        return Head(hashlib.sha256(f"{self._secret}:{room}".encode()).hexdigest()[:16], 0)


def _head(db: sqlite3.Connection, room: str) -> Head | None:
    row = db.execute("SELECT epoch, head FROM rooms WHERE room = ?", (room,)).fetchone()
    return None if row is None else Head(*row)


def _append(
    db: sqlite3.Connection, room: str, drafts: Sequence[Draft], new: Head, after: Head | None
) -> list[Appended]:
    head = _head(db, room)
    if after is not None and (head or new) != after:
        raise Overtaken(f"{room} ends at {(head or new).seq}, not at {after.seq}")
    if head is None:
        head = new
        db.execute("INSERT INTO rooms VALUES (?, ?, 0)", (room, head.epoch))
    seq = head.seq
    appended: list[Appended] = []
    for draft in drafts:
        act = (draft.participant, draft.event.op_id)
        if draft.event.op_id and (first := _first(db, room, act)) is not None:
            appended.append(first)
            continue
        seq += 1
        event = codec.number(draft.event, seq, head.epoch)
        frame = codec.encode(event)
        db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", (room, seq, head.epoch, *act, frame)
        )
        appended.append(Appended(event, frame))
    db.execute("UPDATE rooms SET head = ? WHERE room = ?", (seq, room))
    return appended


def _first(db: sqlite3.Connection, room: str, act: Act) -> Appended | None:
    row = db.execute(
        "SELECT frame FROM events WHERE room = ? AND participant = ? AND op_id = ? AND op_id != ''",
        (room, *act),
    ).fetchone()
    return None if row is None else Appended(codec.decode_event(row[0]), row[0], duplicate=True)


def _find(db: sqlite3.Connection, room: str, acts: list[Act]) -> dict[Act, Appended]:
    found = ((act, _first(db, room, act)) for act in acts)
    return {act: first for act, first in found if first is not None}


def _since(
    db: sqlite3.Connection,
    room: str,
    epoch: str,
    seq: int,
    limit: int,
    max_bytes: int | None,
    new: Head,
) -> History | Gap:
    # One transaction, so that head and events are of the same moment.
    db.execute("BEGIN")
    try:
        head = _head(db, room) or new
        too_many = max_bytes is None and head.seq - seq > limit
        if head.epoch != epoch or seq > head.seq or too_many:
            return Gap(head)
        rows = db.execute(
            "SELECT seq, frame FROM events WHERE room = ? AND seq > ? ORDER BY seq LIMIT ?",
            (room, seq, limit),
        )
        events: list[Appended] = []
        size = 0
        for number, frame in rows:
            if number != seq + len(events) + 1:
                return Gap(head)
            size += len(frame)
            if max_bytes is not None and events and size > max_bytes:
                break
            events.append(Appended(codec.decode_event(frame), frame))
        return History(tuple(events), head)
    finally:
        db.execute("COMMIT")


def _snapshot(db: sqlite3.Connection, room: str) -> Snapshot | None:
    row = db.execute(
        "SELECT s.state FROM snapshots s JOIN rooms r ON r.room = s.room AND r.epoch = s.epoch "
        "WHERE s.room = ? ORDER BY s.seq DESC LIMIT 1",
        (room,),
    ).fetchone()
    return None if row is None else msgspec.msgpack.decode(row[0], type=Snapshot)


def _store_snapshot(db: sqlite3.Connection, room: str, snapshot: Snapshot) -> int:
    state = msgspec.msgpack.encode(snapshot)
    row = (room, snapshot.seq, snapshot.epoch, state)
    db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", row)
    db.execute(
        "DELETE FROM snapshots WHERE room = ? AND seq NOT IN "
        "(SELECT seq FROM snapshots WHERE room = ? ORDER BY seq DESC LIMIT ?)",
        (room, room, _KEPT_SNAPSHOTS),
    )
    return len(state)
