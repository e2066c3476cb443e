"""What all connections share, and what each of them is to the rest of the server."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from protocol.base import ServerMessage
from protocol.errors import CloseCode, ErrorCode
from protocol.messages import Ack, Error, Nack
from server.auth import Auth
from server.background import Background
from server.config import Settings
from server.health import EngineWatch
from server.hub import Hub, Seat
from server.ingest import Ingest
from server.log import Appended, Log
from server.outbox import Outbox
from server.proposals import Answer
from server.turns import Turns

RETRY_S = 2.0
_PASSING = (ErrorCode.UNAVAILABLE, ErrorCode.OVERLOADED)


class Line(Seat, Protocol):
    """The socket as its participant sees it; no call blocks."""

    outbox: Outbox

    def send(self, message: ServerMessage) -> None:
        """Queue a message of the control lane."""
        ...

    def wake(self) -> None:
        """Say that the outbox has something."""
        ...

    def close(self, code: CloseCode) -> None:
        """Close after what is queued in the control lane; events are dropped."""
        ...

    def start(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        """Run something that ends with the connection."""
        ...


@dataclass(frozen=True, slots=True)
class House:
    """What all participants share; built once by `server.app`."""

    settings: Settings
    auth: Auth
    hub: Hub
    log: Log
    ingest: Ingest
    turns: Turns
    engine: EngineWatch
    background: Background
    clock: Callable[[], float]
    wall: Callable[[], float]
    is_draining: Callable[[], bool]
    is_durable: Callable[[], bool]


class Replies:
    """Says yes and no on one line."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def act(self, op_id: str, answer: Answer) -> None:
        """Answer an act with its number or with why it has none."""
        if isinstance(answer, Appended):
            self._line.send(Ack(op_id=op_id, seq=answer.event.seq))
        else:
            self.nack(op_id, answer.code, answer.message)

    def nack(self, op_id: str, code: ErrorCode, message: str, retry_s: float | None = None) -> None:
        """Refuse an act; what passes by itself says when to try again."""
        if retry_s is None and code in _PASSING:
            retry_s = RETRY_S
        self._line.send(Nack(op_id=op_id, code=code, message=message, retry_after=retry_s))

    def error(
        self,
        code: ErrorCode,
        message: str,
        ref: str | None = None,
        *,
        fatal: bool = False,
        retry_s: float | None = None,
    ) -> None:
        """Say that something went wrong."""
        self._line.send(
            Error(code=code, message=message, ref=ref, fatal=fatal, retry_after=retry_s)
        )
