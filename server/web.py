"""The page: the built web client, or a word on how to build it."""

from __future__ import annotations

from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Styles: the viewer places boxes and cursors by element style, which 'self' alone forbids in
# attributes but not through the CSSOM, so no 'unsafe-inline' is needed.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self' ws: wss:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_NOT_BUILT = """Consilium runs, but its page is not built.

Build it with:  make web
or by hand:     cd web-client && npm ci && npm run build

The WebSocket is at /v1/rooms/{room}; see docs/protocol.md.
"""


class SafeHeaders:
    """Adds the headers that keep a page to itself, unless the page has its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; see ASGI."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


def page_route(folder: Path) -> BaseRoute:
    """Serve the web client under `/`."""
    if (folder / "index.html").is_file():
        return Mount("/", StaticFiles(directory=folder, html=True))
    return Route("/", _not_built)


async def _not_built(request: Request) -> PlainTextResponse:
    return PlainTextResponse(_NOT_BUILT, status_code=503)
