"""Who is in a room now: a lease per connection, latest place wins, time passed in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from protocol.messages import Presence
from protocol.state import Person

# What another process said about its people is good for so long.
ELSEWHERE_S = 15.0


@dataclass(slots=True)
class _Here:
    person: Person
    connections: set[int] = field(default_factory=set)
    gone_at: float | None = None


class PresenceBoard:
    """The people of one room. Somebody who is back within `blip_s` never left.

    Somebody may be here, at another process, or both; they are gone when they are nowhere.
    """

    def __init__(self, blip_s: float) -> None:
        self._blip_s = blip_s
        self._here: dict[str, _Here] = {}
        self._elsewhere: dict[str, dict[str, tuple[Person, float]]] = {}

    def people(self) -> tuple[Person, ...]:
        """Everybody, those in a blip included."""
        everybody = {
            name: person
            for people in self._elsewhere.values()
            for name, (person, _) in people.items()
        }
        everybody.update((name, here.person) for name, here in self._here.items())
        return tuple(everybody.values())

    def own(self) -> tuple[Person, ...]:
        """The people who are connected to this process."""
        return tuple(here.person for here in self._here.values() if here.connections)

    def came(self, connection: int, person: Person) -> bool:
        """Let a connection in; True when the others do not know of the person yet."""
        here = self._here.get(person.participant)
        if here is None:
            is_known = self._is_elsewhere(person.participant)
            self._here[person.participant] = _Here(person, {connection})
            return not is_known
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

    def heard(self, node: str, people: Iterable[Person], now: float) -> list[Person]:
        """Note who is at another process; returns those who are new or have moved."""
        known = self._elsewhere.setdefault(node, {})
        news = []
        for person in people:
            name = person.participant
            before = known.get(name)
            if before is None or before[0] != person:
                news.append(person)
            known[name] = (person, now + ELSEWHERE_S)
        return news

    def heard_gone(self, node: str, participant: str) -> bool:
        """Note that somebody left another process; True when they are nowhere now."""
        was_there = self._elsewhere.get(node, {}).pop(participant, None) is not None
        return was_there and not self._is_anywhere(participant)

    def sweep(self, now: float) -> tuple[list[str], list[str]]:
        """Return who left this process since the last sweep, and who is nowhere any more."""
        left = [
            participant
            for participant, here in self._here.items()
            if here.gone_at is not None and now - here.gone_at >= self._blip_s
        ]
        for participant in left:
            del self._here[participant]
        silent: set[str] = set()
        for people in self._elsewhere.values():
            over = [name for name, (_, until) in people.items() if now >= until]
            for name in over:
                del people[name]
            silent.update(over)
        gone = [name for name in [*left, *sorted(silent)] if not self._is_anywhere(name)]
        return left, gone

    def _is_anywhere(self, participant: str) -> bool:
        return participant in self._here or self._is_elsewhere(participant)

    def _is_elsewhere(self, participant: str) -> bool:
        return any(participant in people for people in self._elsewhere.values())
