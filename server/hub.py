"""The rooms and connections of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from protocol import codec
from protocol.errors import OpRefused
from protocol.messages import PresenceGone
from protocol.room import RoomState
from server.background import Background, end
from server.broker import Broker
from server.log import Log
from server.neighbours import Neighbours
from server.notes import Sat
from server.presence import PresenceBoard
from server.room import MAX_BYTES, Room

SWEEP_S = 0.5


class Seat(Protocol):
    """A connection as the hub sees it."""

    def replaced(self) -> None:
        """A newer socket of the same session is here: go."""
        ...

    def go_away(self, retry_after_s: float) -> None:
        """The server will stop: tell the client."""
        ...

    def part(self) -> None:
        """The server stops now: close."""
        ...


@dataclass(slots=True)
class Hosted:
    """A loaded room with who is in it. `holds` counts work that needs it loaded."""

    room: Room
    presence: PresenceBoard
    worker: asyncio.Task[None]
    holds: int = 0
    idle_since: float | None = None
    mending: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_mended: bool = False


class _RoomEars:
    """A loaded room as the broker sees it."""

    def __init__(self, hosted: Hosted, neighbours: Neighbours) -> None:
        self.event = hosted.room.event
        self.gap = hosted.room.gap
        self._hosted = hosted
        self._neighbours = neighbours

    def note(self, node: str, note: bytes) -> None:
        """See `Ears.note`."""
        self._neighbours.hear(self._hosted, node, note)


class Hub:
    """Loads a room when it is first needed and lets it go when nobody needed it for a while.

    `on_load` is called for each load, before anybody is let in: it proposes what mends that which
    a crash left half done. Where other processes serve the room it is called again and again,
    because one of them may have crashed.
    """

    def __init__(
        self,
        log: Log,
        broker: Broker,
        background: Background,
        clock: Callable[[], float],
        wall: Callable[[], float],
        *,
        snapshot_events: int,
        blip_s: float,
        idle_room_s: float,
        room_bytes: int = MAX_BYTES,
    ) -> None:
        self._log = log
        self._broker = broker
        self._background = background
        self._clock = clock
        self._wall = wall
        self._snapshot_events = snapshot_events
        self._blip_s = blip_s
        self._idle_room_s = idle_room_s
        self._room_bytes = room_bytes
        self._hosted: dict[str, Hosted] = {}
        self._seats: dict[tuple[str, str, str], tuple[Seat, float]] = {}
        self.neighbours = Neighbours(broker, clock)
        self.neighbours.on_sat = self._sat_elsewhere
        self.connections: dict[int, Seat] = {}
        self.on_load: Callable[[Room, RoomState], None] = lambda room, state: None

    def __len__(self) -> int:
        return len(self._hosted)

    def __contains__(self, name: str) -> bool:
        return name in self._hosted

    def rooms(self) -> Iterator[Hosted]:
        """The loaded rooms."""
        return iter(list(self._hosted.values()))

    async def enter(self, name: str) -> Hosted:
        """Return a room, loaded and mended, and hold it; pair with `leave`.

        Raises `OpRefused` (`unavailable`) when its log cannot be read.
        """
        hosted = self._hosted.get(name) or await self._host(name)
        hosted.holds += 1
        hosted.idle_since = None
        try:
            async with hosted.mending:
                if not hosted.is_mended:
                    await hosted.room.between(lambda state: self.on_load(hosted.room, state))
                    hosted.is_mended = True
        except BaseException:
            self.leave(hosted)
            raise
        return hosted

    def leave(self, hosted: Hosted) -> None:
        """Let go of a room; it stays loaded for a while."""
        hosted.holds -= 1
        if hosted.holds == 0:
            hosted.idle_since = self._clock()

    async def _host(self, name: str) -> Hosted:
        room = Room(
            name,
            self._log,
            self._background,
            self._snapshot_events,
            self._room_bytes,
        )
        worker = self._background.spawn(room.run(), f"room {name}")
        hosted = Hosted(room, PresenceBoard(self._blip_s), worker)
        # Registered before the first await, so that two who come at once get the same room.
        self._hosted[name] = hosted
        await self._broker.subscribe(name, _RoomEars(hosted, self.neighbours))
        self.neighbours.loaded(name)
        return hosted

    # -- sessions -------------------------------------------------------------------------------

    def sit(self, key: tuple[str, str, str], seat: Seat) -> None:
        """Give the place of a session to its newest socket; the older one is sent away."""
        if (older := self._seats.get(key)) is not None and older[0] is not seat:
            older[0].replaced()
        self._seats[key] = seat, self._wall()
        self.neighbours.sat(*key, self._seats[key][1])

    def rise(self, key: tuple[str, str, str], seat: Seat) -> None:
        """Free a place, unless a newer socket has it."""
        if (taken := self._seats.get(key)) is not None and taken[0] is seat:
            del self._seats[key]

    def _sat_elsewhere(self, room: str, sat: Sat) -> None:
        taken = self._seats.get((room, sat.participant, sat.session))
        if taken is not None and taken[1] < sat.at:
            taken[0].replaced()

    # -- the clock ------------------------------------------------------------------------------

    async def sweep_until_cancelled(self) -> None:
        """Tell who is gone, and unload idle rooms."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self._clock()
            is_roll_due = self._log.is_shared and self.neighbours.is_roll_due()
            for name, hosted in list(self._hosted.items()):
                if is_roll_due:
                    self.neighbours.here(name, *hosted.presence.own())
                    self._background.spawn(self._mend_again(hosted), f"mend {name}")
                left, nowhere = hosted.presence.sweep(now)
                for participant in left:
                    self.neighbours.gone(name, participant)
                for participant in nowhere:
                    gone = PresenceGone(participant=participant)
                    hosted.room.show(gone.coalesce_key(), codec.encode(gone))
                if self._is_idle(hosted, now):
                    await self._unload(name, hosted)

    async def _mend_again(self, hosted: Hosted) -> None:
        try:
            await hosted.room.between(lambda state: self.on_load(hosted.room, state))
        except OpRefused:
            # A log that cannot be read now; it comes again.
            return

    def _is_idle(self, hosted: Hosted, now: float) -> bool:
        if hosted.holds or hosted.idle_since is None or not hosted.room.is_quiet:
            return False
        return now - hosted.idle_since >= self._idle_room_s

    async def _unload(self, name: str, hosted: Hosted) -> None:
        # Removed before the first await: who comes now gets a new load of the room, whose
        # subscription must not be taken away by this one.
        del self._hosted[name]
        await end(hosted.worker)
        if name not in self._hosted:
            await self._broker.unsubscribe(name)
