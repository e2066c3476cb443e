"""Who is in a room now: a lease per connection, latest place wins, time passed in."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from protocol.messages import Presence
from protocol.state import Person


@dataclass(slots=True)
class _Here:
    person: Person
    connections: set[int] = field(default_factory=set)
    gone_at: float | None = None


class PresenceBoard:
    """The people of one room. Somebody who is back within `blip_s` never left."""

    def __init__(self, blip_s: float) -> None:
        self._blip_s = blip_s
        self._here: dict[str, _Here] = {}

    def people(self) -> tuple[Person, ...]:
        """Everybody who is here, those in a blip included."""
        return tuple(here.person for here in self._here.values())

    def came(self, connection: int, person: Person) -> bool:
        """Let a connection in; True when the others do not know of the person yet."""
        here = self._here.get(person.participant)
        if here is None:
            self._here[person.participant] = _Here(person, {connection})
            return True
        here.connections.add(connection)
        here.gone_at = None
        renamed = replace(
            here.person, name=person.name, department=person.department, role=person.role
        )
        is_news = renamed != here.person
        here.person = renamed
        return is_news

    def moved(self, participant: str, place: Presence) -> Person | None:
        """Note where somebody is; None when they are not here."""
        here = self._here.get(participant)
        if here is None:
            return None
        here.person = replace(
            here.person, asset=place.asset, x=place.x, y=place.y, typing=place.typing
        )
        return here.person

    def left(self, connection: int, participant: str, now: float) -> None:
        """Let a connection go; the person is gone when no other comes within the blip."""
        here = self._here.get(participant)
        if here is not None:
            here.connections.discard(connection)
            if not here.connections:
                here.gone_at = now

    def sweep(self, now: float) -> list[str]:
        """Return the participants who are gone since the last sweep."""
        gone = [
            participant
            for participant, here in self._here.items()
            if here.gone_at is not None and now - here.gone_at >= self._blip_s
        ]
        for participant in gone:
            del self._here[participant]
        return gone
