"""A connection's place in its room: got by `hello`, kept until the socket ends."""

from __future__ import annotations

from engine.embedded import TABLE
from protocol import codec
from protocol.errors import ErrorCode, OpRefused
from protocol.messages import (
    Access,
    Hello,
    Limits,
    MediaAccess,
    Presence,
    PresenceState,
    Welcome,
)
from protocol.room import RoomState
from protocol.session import ServerSession
from protocol.state import Person, Snapshot
from server.auth import Identity
from server.config import Settings
from server.feed import Feed
from server.house import House, Line
from server.hub import Hosted
from server.streams import Streams

_OPEN_NOTICE = "This server is open: anybody on this machine may join any room."
# With 135 million parameters it calls a low value normal now and then.
_SMALL_MODEL_NOTICE = (
    "The embedded model is small: check every sentence that it writes. "
    "Values, flags and boxes are read from the sheet and do not come from it."
)


def _notices(settings: Settings) -> tuple[str, ...]:
    """What everybody should know of this server."""
    notices = [_OPEN_NOTICE] if settings.is_open else []
    if settings.model == Settings.model:
        notices.append(_SMALL_MODEL_NOTICE)
    speech = TABLE.get(settings.speech_model)
    if speech is not None and speech.languages == ("en",):
        notices.append(f"Speech is written down in English only ({speech.name}).")
    return tuple(notices)


class Place:
    """Who a connection is, and its feed and streams. `enter` before anything else."""

    def __init__(
        self,
        number: int,
        room: str,
        identity: Identity,
        hosted: Hosted,
        line: Line,
        house: House,
        session: ServerSession,
    ) -> None:
        self.identity = identity
        self.hosted = hosted
        self.streams = Streams(
            house.ingest, hosted, identity.actor, line, session, house.background
        )
        self.feed = Feed(
            hosted.room,
            house.log,
            line.outbox,
            wake=line.wake,
            announce=self._welcome,
            resume_events=house.settings.resume_events,
            page_bytes=house.settings.outbox_bytes // 2,
            clock=house.clock,
        )
        self._number = number
        self._room_name = room
        self._line = line
        self._house = house
        self._seat: tuple[str, str, str] | None = None
        self._ticket_until = 0.0
        self._has_left = False
        self._is_typing = False

    async def enter(self, hello: Hello) -> None:
        """Take the session's seat and become a member; raises `OpRefused`.

        At exactly one state of the room: the welcome speaks of it, and every event after it
        follows.
        """
        if len(self.hosted.room.members) >= self._house.settings.max_members:
            raise OpRefused("the room is full", code=ErrorCode.ROOM_FULL)
        self._seat = (self._room_name, self.identity.participant, hello.session)
        self._house.hub.sit(self._seat, self._line)
        # Fresh, because the client may have heard more at another process than this one did.
        await self.hosted.room.between(lambda state: self._become_member(state, hello), fresh=True)
        if self.identity.may_write:
            self._house.turns.expect(self._room_name)

    def _become_member(self, state: RoomState, hello: Hello) -> None:
        if self._has_left:
            return
        identity = self.identity
        person = Person(
            participant=identity.participant,
            name=identity.name,
            department=identity.department,
            role=identity.role,
        )
        is_news = self.hosted.presence.came(self._number, person)
        resume = hello.resume
        is_resumed = resume is not None and self.feed.start(state, resume.epoch, resume.seq)
        if not is_resumed:
            self.feed.start(state, state.epoch, state.seq)
        self._welcome(None if is_resumed else state.snapshot())
        self.hosted.room.members[self._number] = self.feed
        if is_news:
            self._show(person)

    def _welcome(self, snapshot: Snapshot | None) -> None:
        settings = self._house.settings
        head = self.hosted.room.head
        self._line.send(
            Welcome(
                participant=self.identity.participant,
                name=self.identity.name,
                department=self.identity.department,
                role=self.identity.role,
                room=self._room_name,
                epoch=head.epoch,
                head=head.seq,
                limits=Limits(
                    max_asset_bytes=settings.max_asset_bytes,
                    max_streams=settings.max_streams,
                    initial_credit_bytes=settings.credit_bytes,
                ),
                heartbeat_s=settings.heartbeat_s,
                media=self._access(),
                people=self.hosted.presence.people(),
                snapshot=snapshot,
                model=self._house.engine.model,
                durable=self._house.is_durable(),
                notices=_notices(settings),
            )
        )

    def leave(self) -> None:
        """Let go of everything; the socket is gone."""
        self._has_left = True
        self.streams.detach()
        self.hosted.room.members.pop(self._number, None)
        self.hosted.presence.left(self._number, self.identity.participant, self._house.clock())
        if self._seat is not None:
            self._house.hub.rise(self._seat, self._line)
        self._house.hub.leave(self.hosted)

    def move(self, presence: Presence) -> None:
        """Show the others where this participant is."""
        if presence.typing and not self._is_typing and self.identity.may_write:
            self._house.turns.expect(self._room_name)
        self._is_typing = presence.typing
        person = self.hosted.presence.moved(self.identity.participant, presence)
        if person is not None:
            self._show(person)

    def _show(self, person: Person) -> None:
        self._house.hub.neighbours.here(self._room_name, person)
        state = PresenceState(person=person)
        self.hosted.room.show(state.coalesce_key(), codec.encode(state), but=self._number)

    def renew(self, token: str) -> None:
        """Take a newer token; raises `ProtocolError` and changes nothing when it is not good."""
        self.identity = self._house.auth.refresh(token, self.identity, self._room_name)
        self.send_access()

    def is_expired(self, now: float) -> bool:
        """Whether the token is past its end; `now` is Unix seconds."""
        end = self.identity.expires_at
        return end is not None and now >= end

    def needs_access(self, now: float) -> bool:
        """Whether the ticket for pictures ends soon; `now` is Unix seconds."""
        return now > self._ticket_until - self._house.settings.ticket_s / 5

    def send_access(self) -> None:
        """Send a fresh ticket for pictures."""
        self._line.send(Access(media=self._access()))

    def _access(self) -> MediaAccess:
        ticket, self._ticket_until = self._house.auth.ticket(
            self.identity.participant, self._room_name, self.identity.role, self._house.wall()
        )
        return MediaAccess(
            base=f"/v1/rooms/{self._room_name}/assets",
            ticket=ticket,
            expires_at=int(self._ticket_until * 1000),
        )
