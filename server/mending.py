"""What a crash left half done in a room, mended when the room is loaded."""

from __future__ import annotations

from collections.abc import Callable

from protocol.errors import ErrorCode
from protocol.room import RoomState
from server.answer import failure
from server.background import Background
from server.ingest import Ingest
from server.log import Appended
from server.looking import Looking, unread
from server.room import Answer, Proposal, Room
from server.turns import Turns


class Mending:
    """Ends turns that nobody answers, and takes up uploads and looks that were cut off."""

    def __init__(
        self,
        turns: Turns,
        ingest: Ingest,
        looking: Looking,
        background: Background,
        wall: Callable[[], float],
    ) -> None:
        self._turns = turns
        self._ingest = ingest
        self._looking = looking
        self._background = background
        self._wall = wall

    def mend(self, room: Room, state: RoomState) -> None:
        """Propose at once what everybody who joins has to see; start the rest."""
        for turn in state.running_turns():
            if not self._turns.is_running(room.name, turn.turn):
                self._interrupt(room, turn.turn)
        for asset in state.assets.values():
            if asset.status == "open" and not self._ingest.is_coming(asset.asset):
                work = self._ingest.abandon_later(room.name, asset.asset)
                self._background.spawn(work, f"abandon {asset.asset}")
        for asset in unread(state):
            self._looking.look(room.name, asset.asset)

    def _interrupt(self, room: Room, turn: str) -> None:
        message = "the server stopped while the turn ran"
        ended = failure(turn, int(self._wall() * 1000), ErrorCode.TURN_INTERRUPTED, message)

        async def try_again() -> None:
            await room.record(ended)

        def answered(result: Answer) -> None:
            if not isinstance(result, Appended):
                self._background.spawn(try_again(), f"interrupt {turn}")

        room.propose(Proposal(lambda state: ended, answered, op_id=ended.op_id))
