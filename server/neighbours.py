"""What this process tells the other ones that serve a room, and what it does when they speak."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from protocol import codec
from protocol.messages import PresenceGone, PresenceState
from protocol.shapes import Actor
from protocol.state import Person
from server import notes
from server.broker import Broker

if TYPE_CHECKING:
    from server.hub import Hosted

# Three of them may be lost before the lease of `presence.ELSEWHERE_S` is over.
ROLL_S = 4.0
PEOPLE_A_NOTE = 100


class Neighbours:
    """Speaks and hears on the bus; `on_…` are set once, by the composition root."""

    def __init__(self, broker: Broker, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._clock = clock
        self._rolled_at = clock()
        self.on_sat: Callable[[str, notes.Sat], None] = lambda room, sat: None
        self.on_end_turn: Callable[[str, notes.EndTurn], None] = lambda room, end: None
        self.on_hand_over: Callable[[str], None] = lambda asset: None

    # -- speaking -------------------------------------------------------------------------------

    def loaded(self, room: str) -> None:
        """Ask the others who is with them."""
        self._tell(room, notes.WhoIsHere())

    def here(self, room: str, *people: Person) -> None:
        """Say that these are connected to this process."""
        for start in range(0, len(people), PEOPLE_A_NOTE):
            self._tell(room, notes.Here(people[start : start + PEOPLE_A_NOTE]))

    def gone(self, room: str, participant: str) -> None:
        """Say that somebody is no longer connected to this process."""
        self._tell(room, notes.Gone(participant))

    def sat(self, room: str, participant: str, session: str, at: float) -> None:
        """Say that a session has a newer socket here."""
        self._tell(room, notes.Sat(participant, session, at))

    def shown(self, room: str, key: str, frame: bytes) -> None:
        """Show a lossy message to the people of the others."""
        self._tell(room, notes.Shown(key, frame))

    def end_turn(self, room: str, turn: str, end: notes.End, by: Actor) -> None:
        """Ask whoever answers a turn to end it."""
        self._tell(room, notes.EndTurn(turn, end, by))

    def hand_over(self, room: str, asset: str) -> None:
        """Ask whoever has an upload open to let go of it."""
        self._tell(room, notes.HandOver(asset))

    def is_roll_due(self) -> bool:
        """Whether it is time again to say who is here; asking is taking note."""
        is_due = self._clock() - self._rolled_at >= ROLL_S
        if is_due:
            self._rolled_at = self._clock()
        return is_due

    def _tell(self, room: str, note: notes.Note) -> None:
        self._broker.tell(room, notes.encode(note))

    # -- hearing --------------------------------------------------------------------------------

    def hear(self, hosted: Hosted, node: str, raw: bytes) -> None:
        """Do what follows from a note. Nothing heard is ever told on."""
        room = hosted.room
        match notes.decode(raw):
            case notes.Here(people=people):
                for person in hosted.presence.heard(node, people, self._clock()):
                    state = PresenceState(person=person)
                    room.show(state.coalesce_key(), codec.encode(state))
            case notes.Gone(participant=participant):
                if hosted.presence.heard_gone(node, participant):
                    gone = PresenceGone(participant=participant)
                    room.show(gone.coalesce_key(), codec.encode(gone))
            case notes.WhoIsHere():
                self.here(room.name, *hosted.presence.own())
            case notes.Shown(key=key, frame=frame):
                room.show(key, frame)
            case notes.Sat() as sat:
                self.on_sat(room.name, sat)
            case notes.EndTurn() as end:
                self.on_end_turn(room.name, end)
            case notes.HandOver(asset=asset):
                self.on_hand_over(asset)
            case None:
                pass
            case other:
                assert_never(other)
