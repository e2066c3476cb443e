"""What a client decides about joining: addresses, pauses between tries, and how it can fail.

ConsultationError
├── Refused          an op or a question was not taken
├── UploadFailed     an upload ended without an asset
├── AnswerFailed     an answer ended by a fault
├── FellBehind       a reader of events was too slow
└── Disconnected     the room cannot be joined (again)
"""

from __future__ import annotations

from urllib.parse import quote, urlsplit, urlunsplit

from protocol.errors import CloseCode, ErrorCode

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
_SOCKET_SCHEME = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
# A proxy or a server that is starting or full answers these for a while; 500 may be one worker's.
_PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


class ConsultationError(Exception):
    """Base of what a consultation raises."""


class Refused(ConsultationError):
    """An op or a question was not taken and changed nothing."""

    def __init__(self, code: ErrorCode, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retry_after_s = retry_after_s


class UploadFailed(ConsultationError):
    """An upload ended without an asset that can be used."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class AnswerFailed(ConsultationError):
    """An answer ended by a fault; what was delivered stays in the room's state."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class FellBehind(ConsultationError):
    """A reader let more events wait than are kept; the room's state is whole all the same."""


class Disconnected(ConsultationError):
    """The room was left for good, by its close code or by us; `code` is the server's reason."""

    def __init__(self, message: str, close_code: int = 1006, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.close_code = close_code
        self.code = code

    @property
    def is_ours(self) -> bool:
        """Whether we left by ourselves."""
        return self.close_code == CloseCode.NORMAL


def socket_url(url: str, room: str | None) -> str:
    """Name a room's WebSocket; `url` is the server's address, or the whole one without `room`.

    Raises `ValueError` for an address that is neither http(s) nor ws(s).
    """
    parts = urlsplit(url)
    scheme = _SOCKET_SCHEME.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ValueError(f"{url!r} is not an address such as ws://127.0.0.1:8760")
    path = parts.path
    if room is not None:
        path = f"{path.rstrip('/')}/v1/rooms/{quote(room, safe=':')}"
    elif "/v1/rooms/" not in path:
        raise ValueError(f"{url!r} names no room, and `room` was not given")
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def http_origin(url: str) -> str:
    """Name the HTTP side of a WebSocket's host."""
    parts = urlsplit(url)
    return f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}"


def is_final_status(status: int) -> bool:
    """Whether an HTTP answer to the upgrade says that the same try will never succeed."""
    return status not in _PASSING_STATUSES


def pause_s(attempt: int, retry_after_s: float | None, chance: float) -> float:
    """Say how long to wait before try `attempt` (0 first); `chance` is random in [0, 1).

    Full jitter on top of what the server asks for, so that a thousand clients that were dropped
    in one second do not come back in one second.
    """
    spread = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt, 16))
    return (retry_after_s or 0.0) + chance * spread


def seconds(retry_after: str | None) -> float | None:
    """Read an HTTP `Retry-After` of seconds; a date in it is passed over."""
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
