"""What is asked of a room, and who hears what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.errors import ErrorCode, OpRefused, ProtocolError
from protocol.events import Event
from protocol.room import RoomState
from server.log import Appended

Answer = Appended | ProtocolError


class Member(Protocol):
    """A connection as its room sees it; no call may block."""

    def deliver(self, seq: int, frame: bytes) -> None:
        """Take an event that was published."""
        ...

    def show(self, key: str, frame: bytes) -> None:
        """Take a lossy message."""
        ...


@dataclass(frozen=True, slots=True)
class Proposal:
    """An event that somebody wants: `make` builds it from the state, or raises `OpRefused`.

    `is_same` says whether an event that has this act's number is what was asked for now: the
    same `op_id` for something else is refused. `answer` is called exactly once.
    """

    make: Callable[[RoomState], Event]
    answer: Callable[[Answer], None]
    participant: str = ""
    op_id: str = ""
    is_same: Callable[[Event], bool] = lambda event: True
    conflict: ErrorCode = ErrorCode.OP_CONFLICT


@dataclass(frozen=True, slots=True)
class Look:
    """Something that reads the state while it equals the log."""

    call: Callable[[RoomState], None]
    refuse: Callable[[ProtocolError], None]
    is_fresh: bool


def refuse(waiting: Proposal | Look, refusal: ProtocolError) -> None:
    """Say that what waits will not be done."""
    if isinstance(waiting, Proposal):
        waiting.answer(refusal)
    else:
        waiting.refuse(refusal)


def closed() -> OpRefused:
    """Why a room that was let go takes nothing."""
    return OpRefused("the room was closed", code=ErrorCode.UNAVAILABLE)


def is_passing(result: Answer) -> bool:
    """Whether a server's own event has to be tried again; raises what does not pass."""
    if isinstance(result, Appended):
        return False
    if result.code in (ErrorCode.UNAVAILABLE, ErrorCode.OVERLOADED):
        return True
    raise result


def repeated(proposal: Proposal, first: Appended) -> Answer:
    """Answer an act whose id has its number already."""
    if proposal.is_same(first.event):
        return first
    return OpRefused("this id was used for something else", code=proposal.conflict)
