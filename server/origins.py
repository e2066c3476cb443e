"""Which pages may open a socket here."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from protocol.errors import Forbidden
from server.config import is_loopback


class Origins:
    """Lets a page in that this server sent itself, or that is on the list.

    An open server answers on loopback names alone: else any web page could rebind its own name
    to 127.0.0.1 and be of the same origin.
    """

    def __init__(self, allowed: tuple[str, ...], is_open: bool) -> None:
        self._allowed = frozenset(origin.rstrip("/").lower() for origin in allowed)
        self._is_open = is_open

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise `Forbidden` when the page that connects may not."""
        host = headers.get("host", "").lower()
        origin = headers.get("origin", "").rstrip("/").lower()
        if origin in self._allowed and origin:
            return
        if self._is_open and not is_loopback(urlsplit(f"//{host}").hostname or ""):
            raise Forbidden("an open server answers on loopback names only")
        if origin and urlsplit(origin).netloc != host:
            raise Forbidden("this page's origin is not allowed")
