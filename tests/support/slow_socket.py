"""A participant that joins and then neither reads nor answers: a wedged client."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import struct


class SlowSocket:
    """A raw TCP socket with a small receive buffer that nobody empties."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @classmethod
    async def join(cls, port: int, room: str) -> SlowSocket:
        """Shake hands, say hello, read the welcome's beginning and stop."""
        connected = socket.socket()
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connected.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connected, ("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET /v1/rooms/{room} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: consilium.v1\r\n\r\n"
        )
        await loop.sock_sendall(connected, request.encode())
        await loop.sock_recv(connected, 1024)
        hello = b'{"type":"hello","session":"slow-slow-slow-slow","client":"slow"}'
        await loop.sock_sendall(connected, _masked_text(hello))
        await loop.sock_recv(connected, 64)
        return cls(connected)

    async def read(self, size: int) -> bytes:
        """Read a little after all."""
        return await asyncio.get_running_loop().sock_recv(self._socket, size)

    def close(self) -> None:
        """Let the socket go."""
        self._socket.close()


def _masked_text(payload: bytes) -> bytes:
    assert len(payload) < 126
    mask = b"\x01\x02\x03\x04"
    body = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return struct.pack("!BB", 0x81, 0x80 | len(payload)) + mask + body
