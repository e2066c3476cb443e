"""What the model read and made, turn by turn, for audit: too big and too rarely read for events."""

from __future__ import annotations

from typing import Protocol

import msgspec

from server.database import Database


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One turn in full. `token_ids` are those the model made, the end token excluded."""

    turn: str
    model: str
    prompt: str
    prompt_sha256: str
    text: str = ""
    token_ids: tuple[int, ...] = ()
    finish: str = ""


class TurnRecords(Protocol):
    """Keeps turn records beside the log."""

    async def keep(self, room: str, record: TurnRecord) -> None:
        """Store a record, over an earlier one of the same turn; raises `LogUnavailable`."""
        ...

    async def find(self, room: str, turn: str) -> TurnRecord | None:
        """Return a turn's record; raises `LogUnavailable`."""
        ...


class SqliteTurnRecords:
    """`TurnRecords` in the log's own file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, room: str, record: TurnRecord) -> None:
        """See `TurnRecords.keep`."""
        row = (room, record.turn, msgspec.msgpack.encode(record))
        await self._database.write(
            lambda db: db.execute("INSERT OR REPLACE INTO turn_records VALUES (?, ?, ?)", row)
        )

    async def find(self, room: str, turn: str) -> TurnRecord | None:
        """See `TurnRecords.find`."""
        row = await self._database.read(
            lambda db: db.execute(
                "SELECT record FROM turn_records WHERE room = ? AND turn = ?", (room, turn)
            ).fetchone()
        )
        return None if row is None else msgspec.msgpack.decode(row[0], type=TurnRecord)
