"""What a participant hears beside the room's state: who is here, and events as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from protocol import messages as ms
from protocol.base import ServerMessage
from protocol.joining import Disconnected, FellBehind
from protocol.state import Person

MAX_WAITING_EVENTS = 10_000


class Surroundings:
    """What passes and is in no log: who is here, and how pictures are fetched now."""

    def __init__(self) -> None:
        self.people: dict[str, Person] = {}
        self.media = ms.MediaAccess(base="", ticket="", expires_at=0)

    def take(self, message: ServerMessage) -> None:
        """Keep what a message changes."""
        match message:
            case ms.Welcome():
                self.people = {person.participant: person for person in message.people}
                self.media = message.media
            case ms.Access():
                self.media = message.media
            case ms.PresenceState():
                self.people[message.person.participant] = message.person
            case ms.PresenceGone():
                self.people.pop(message.participant, None)
            case _:
                pass


class Reader:
    """One listener's events. At the limit it is cut off; the room's state is whole anyway."""

    def __init__(
        self,
        until: Callable[[Callable[[], bool]], Awaitable[None]],
        kinds: tuple[type[ServerMessage], ...],
    ) -> None:
        self._until = until
        self._kinds = kinds
        self._waiting: deque[ServerMessage] = deque()
        self._behind = False

    def offer(self, message: ServerMessage) -> None:
        """Keep a message for the listener, if it is of the kinds that it asked for."""
        if isinstance(message, self._kinds) and not self._behind:
            self._behind = len(self._waiting) >= MAX_WAITING_EVENTS
            self._waiting.append(message)

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> ServerMessage:
        if self._behind:
            raise FellBehind(f"{MAX_WAITING_EVENTS} events waited for their reader")
        try:
            await self._until(lambda: len(self._waiting) > 0)
        except Disconnected as end:
            if end.is_ours:
                raise StopAsyncIteration from None
            raise
        return self._waiting.popleft()
