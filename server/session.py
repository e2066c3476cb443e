"""One participant: every message they send, decided in one place."""

from __future__ import annotations

from typing import assert_never, cast

import msgspec

from protocol.base import ClientMessage
from protocol.errors import CloseCode, ErrorCode, OpRefused, ProtocolError, StreamError
from protocol.events import Event
from protocol.media import MediaFrame
from protocol.messages import (
    AnyClientMessage,
    Ask,
    Cancel,
    HeartbeatAck,
    Hello,
    Op,
    Presence,
    Refresh,
    StreamAbort,
    StreamClose,
    StreamOpen,
)
from protocol.room import RoomState, draft_event
from protocol.session import ServerSession
from server.house import RETRY_S, House, Line, Replies
from server.limits import ConnectionLimits
from server.place import Place
from server.proposals import Proposal

MAX_HELD = 256


class Participant:
    """What one connection says, and what comes of it. `handle` never waits."""

    def __init__(
        self, number: int, room: str, line: Line, house: House, session: ServerSession
    ) -> None:
        self.place: Place | None = None
        self._number = number
        self._room_name = room
        self._line = line
        self._house = house
        self._session = session
        self._replies = Replies(line)
        self._held: list[AnyClientMessage | MediaFrame] = []
        self._has_left = False
        settings = house.settings
        self._limits = ConnectionLimits(
            settings.messages_per_s,
            settings.messages_burst,
            settings.presence_per_s,
            house.clock(),
        )

    def handle(self, incoming: ClientMessage | MediaFrame | ProtocolError) -> None:
        """Take what the client said, or answer its mistake."""
        if isinstance(incoming, ProtocolError):
            self._answer_mistake(incoming)
        elif isinstance(incoming, Hello):
            self._line.start(self._join, incoming)
        elif self.place is None:
            self._hold(cast(AnyClientMessage | MediaFrame, incoming))
        elif isinstance(incoming, MediaFrame):
            self.place.streams.chunk(incoming)
        else:
            self._route(self.place, cast(AnyClientMessage, incoming))

    def pause_s(self, size: int, now: float) -> float:
        """How long to read nothing after a text frame of so many bytes."""
        return self._limits.pause_s(size, now)

    def _route(self, place: Place, message: AnyClientMessage) -> None:
        if not self._is_within_rate(message):
            return
        match message:
            case Op():
                self._op(place, message)
            case Ask():
                self._ask(place, message)
            case Cancel():
                self._cancel(place, message)
            case Presence():
                place.move(message)
            case StreamOpen():
                self._open_stream(place, message)
            case StreamClose():
                place.streams.close(message)
            case StreamAbort():
                place.streams.abort(message)
            case Refresh():
                self._refresh(place, message)
            case HeartbeatAck():
                pass  # that anything came is noted by the session
            case Hello():
                raise AssertionError("a second hello is refused by the session")
            case _:
                assert_never(message)

    # -- coming, going, time --------------------------------------------------------------------

    async def _join(self, hello: Hello) -> None:
        try:
            place = await self._find_place(hello)
            if self._has_left:
                place.leave()
                return
            await self._enter(place, hello)
        except OpRefused as refusal:
            self._turn_away(refusal)
        except ProtocolError as mistake:
            self._answer_mistake(mistake)

    async def _find_place(self, hello: Hello) -> Place:
        house = self._house
        if house.is_draining():
            raise OpRefused("the server is about to stop", code=ErrorCode.DRAINING)
        identity = house.auth.admit(hello, self._room_name)
        if self._room_name not in house.hub and len(house.hub) >= house.settings.max_rooms:
            raise OpRefused("the server has no place for more rooms", code=ErrorCode.OVERLOADED)
        hosted = await house.hub.enter(self._room_name)
        return Place(
            self._number, self._room_name, identity, hosted, self._line, house, self._session
        )

    async def _enter(self, place: Place, hello: Hello) -> None:
        try:
            await place.enter(hello)
        except BaseException:
            place.leave()
            raise
        self.place = place
        self._line.start(place.feed.catch_up_until_cancelled)
        held, self._held = self._held, []
        for message in held:
            self.handle(message)

    def leave(self) -> None:
        """Let go of everything; the socket is gone."""
        self._has_left = True
        if self.place is not None:
            self.place.leave()

    def tick(self, now: float) -> None:
        """Do what is due: end with the token, renew the ticket. `now` is Unix seconds."""
        if self.place is None:
            return
        if self.place.is_expired(now):
            text = "the token is past its end; come with a new one"
            self._replies.error(ErrorCode.TOKEN_EXPIRED, text, fatal=True)
            self._line.close(CloseCode.UNAUTHENTICATED)
        elif self.place.needs_access(now):
            self.place.send_access()

    # -- acts -----------------------------------------------------------------------------------

    def _op(self, place: Place, message: Op) -> None:
        identity = place.identity
        if not identity.may_write:
            text = "your role may not change the room"
            self._replies.nack(message.op_id, ErrorCode.FORBIDDEN, text)
            return
        at = int(self._house.wall() * 1000)

        def make(state: RoomState) -> Event:
            return draft_event(state, message.op, identity.actor, at, message.op_id)

        place.hosted.room.propose(
            Proposal(
                make,
                lambda answer: self._replies.act(message.op_id, answer),
                identity.participant,
                message.op_id,
                lambda first: _is_same_act(message, first),
            )
        )

    def _ask(self, place: Place, ask: Ask) -> None:
        if not place.identity.may_write:
            self._replies.nack(ask.turn, ErrorCode.FORBIDDEN, "your role may not ask")
            return
        self._house.turns.ask(
            place.hosted,
            place.identity.actor,
            ask,
            lambda answer: self._replies.act(ask.turn, answer),
        )

    def _cancel(self, place: Place, message: Cancel) -> None:
        identity, turns = place.identity, self._house.turns
        if not identity.may_write:
            text = "your role may not end a turn"
            self._replies.error(ErrorCode.FORBIDDEN, text, message.turn)
        elif not turns.end(self._room_name, message.turn, "person", identity.actor):
            self._line.start(self._cancel_elsewhere, place, message)

    async def _cancel_elsewhere(self, place: Place, message: Cancel) -> None:
        turns, by = self._house.turns, place.identity.actor
        if not await turns.end_elsewhere(place.hosted, message.turn, "person", by):
            text = "the turn is not running"
            self._replies.error(ErrorCode.TURN_UNKNOWN, text, message.turn)

    def _open_stream(self, place: Place, message: StreamOpen) -> None:
        if place.identity.may_upload:
            place.streams.open(message)
        else:
            text = "your role may not upload"
            self._replies.error(ErrorCode.FORBIDDEN, text, str(message.stream))

    def _refresh(self, place: Place, message: Refresh) -> None:
        try:
            place.renew(message.token)
        except ProtocolError as mistake:
            self._answer_mistake(mistake)

    # -- refusals -------------------------------------------------------------------------------

    def _answer_mistake(self, mistake: ProtocolError) -> None:
        if isinstance(mistake, StreamError) and self.place is not None:
            self.place.streams.broken(mistake)
            return
        if mistake.close_code is None and self._limits.message(self._house.clock()):
            # Beyond the rate a mistake is not answered, so that mistakes cost no more than acts.
            if self._limits.is_hopeless:
                self._line.close(CloseCode.RATE)
            return
        self._replies.error(mistake.code, mistake.message, mistake.ref, fatal=mistake.fatal)
        if mistake.close_code is not None:
            self._line.close(mistake.close_code)

    def _turn_away(self, refusal: OpRefused) -> None:
        """Say that this room cannot be served now; the client comes back later."""
        self._replies.error(refusal.code, refusal.message, fatal=True, retry_s=RETRY_S)
        is_draining = refusal.code == ErrorCode.DRAINING
        self._line.close(CloseCode.DRAINING if is_draining else CloseCode.UNAVAILABLE)

    def _hold(self, message: AnyClientMessage | MediaFrame) -> None:
        """Keep what comes between `hello` and `welcome`; it is handled in its order."""
        if len(self._held) < MAX_HELD:
            self._held.append(message)
        else:
            self._refuse_rate(message, "wait for `welcome`", 1.0)

    def _is_within_rate(self, message: AnyClientMessage) -> bool:
        now = self._house.clock()
        if isinstance(message, HeartbeatAck):
            return True
        if isinstance(message, Presence):
            return self._limits.may_show_presence(now)
        wait_s = self._limits.message(now)
        if wait_s and self._limits.is_hopeless:
            self._line.close(CloseCode.RATE)
        elif wait_s:
            self._refuse_rate(message, "too many messages", wait_s)
        return not wait_s

    def _refuse_rate(
        self, message: AnyClientMessage | MediaFrame, text: str, wait_s: float
    ) -> None:
        if isinstance(message, Op):
            self._replies.nack(message.op_id, ErrorCode.RATE_LIMITED, text, wait_s)
        elif isinstance(message, Ask):
            self._replies.nack(message.turn, ErrorCode.RATE_LIMITED, text, wait_s)
        else:
            self._replies.error(ErrorCode.RATE_LIMITED, text, retry_s=wait_s)


def _is_same_act(message: Op, first: Event) -> bool:
    """Whether the event that has this act's number says what the op says now."""
    said = msgspec.to_builtins(message.op)
    kept = msgspec.to_builtins(first)
    return all(kept.get(name) == value for name, value in said.items())
