"""What a crash left half done in a room, mended when the room is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

from protocol.errors import ErrorCode, OpRefused
from protocol.room import RoomState
from server.answer import failure
from server.background import Background
from server.hub import Hub
from server.ingest import Ingest
from server.leases import Leases
from server.log import Appended, LogUnavailable
from server.looking import Looking, unread
from server.proposals import Answer, Proposal
from server.room import Room
from server.turns import Turns, lease_name

# A turn that nobody has a lease on is looked at once more: it may just have begun.
LEASE_CHECK_S = 1.0
FREE_CHECKS = 2


class Mending:
    """Ends turns that nobody answers, and takes up uploads and looks that were cut off.

    Where other processes serve the room too, a turn is left to the one that has its lease.
    """

    def __init__(
        self,
        turns: Turns,
        ingest: Ingest,
        looking: Looking,
        hub: Hub,
        leases: Leases,
        background: Background,
        wall: Callable[[], float],
    ) -> None:
        self._turns = turns
        self._ingest = ingest
        self._looking = looking
        self._hub = hub
        self._leases = leases
        self._watched: set[str] = set()
        self._background = background
        self._wall = wall

    def mend(self, room: Room, state: RoomState) -> None:
        """Propose at once what everybody who joins has to see; start the rest."""
        for turn in state.running_turns():
            if self._turns.is_running(room.name, turn.turn):
                continue
            if self._leases.is_shared:
                name = f"watch {room.name} {turn.turn}"
                self._once(name, partial(self._watch, room.name, turn.turn))
            else:
                self._interrupt(room, turn.turn)
        for asset in state.assets.values():
            if asset.status == "open" and not self._ingest.is_coming(asset.asset):
                work = partial(self._ingest.abandon_later, room.name, asset.asset)
                self._once(f"abandon {asset.asset}", work)
        for asset in unread(state):
            self._looking.look(room.name, asset.asset)

    def _once(self, name: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Start work unless it is under way."""
        if name not in self._watched:
            self._watched.add(name)
            task = self._background.spawn(work(), name)
            task.add_done_callback(lambda task: self._watched.discard(name))

    async def _watch(self, room: str, turn: str) -> None:
        """End a turn of another process when that one's lease is over."""
        hosted = await self._hub.enter(room)
        free = 0
        try:
            while await hosted.room.between(lambda state: state.turns[turn].status == "running"):
                try:
                    is_taken = await self._leases.is_taken(room, lease_name(turn))
                    free = 0 if is_taken else free + 1
                except LogUnavailable:
                    free = 0
                if free == FREE_CHECKS:
                    self._interrupt(hosted.room, turn)
                    return
                await asyncio.sleep(LEASE_CHECK_S)
        except OpRefused:
            # The log cannot be read now; the room is mended again and again.
            return
        finally:
            self._hub.leave(hosted)

    def _interrupt(self, room: Room, turn: str) -> None:
        message = "the server stopped while the turn ran"
        ended = failure(turn, int(self._wall() * 1000), ErrorCode.TURN_INTERRUPTED, message)

        async def try_again() -> None:
            await room.record(ended)

        def answered(result: Answer) -> None:
            if not isinstance(result, Appended):
                self._background.spawn(try_again(), f"interrupt {turn}")

        room.propose(Proposal(lambda state: ended, answered, op_id=ended.op_id))
