"""The deadline's arithmetic without a socket, and what HTTP clients may hold with one."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from server import transport
from server.transport import Progress

LARGE = 16_000_000


class Transport:
    """What `Progress` asks of a transport."""

    def __init__(self) -> None:
        self.size = 0
        self.is_aborted = False

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.is_aborted = True


def test_who_takes_nothing_is_stuck_and_who_takes_a_little_is_not():
    pipe = Transport()
    progress = Progress(pipe)
    assert progress.stuck_s(100) == 0
    pipe.size = 1_000
    progress.sending(now=0)
    assert progress.stuck_s(9) == 9
    pipe.size = 999
    assert progress.stuck_s(10) == 0
    assert progress.stuck_s(15) == 5
    progress.sent()
    assert progress.stuck_s(100) == 0


def test_without_a_transport_nothing_is_buffered_and_nothing_aborted():
    progress = Progress(None)
    assert progress.buffered_bytes == 0
    progress.abort()


# -- HTTP ---------------------------------------------------------------------------------------


async def connect(server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def sent_until_refused(writer: asyncio.StreamWriter, piece: bytes, limit: int) -> int:
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < limit:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    return sent


@pytest.mark.parametrize("piece", [b"X-Pad: " + b"y" * 1_000 + b"\r\n", b"a" * 1_000])
async def test_a_request_whose_head_never_ends_is_refused_soon(server, piece):
    """One request with 200 MB of headers took 220 MB of the server's memory."""
    reader, writer = await connect(server)
    is_header = piece.startswith(b"X")
    writer.write(b"GET / HTTP/1.1\r\n" if is_header else b"GET /")
    assert await sent_until_refused(writer, piece, 64_000_000) < 64_000_000
    with contextlib.suppress(ConnectionError):
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_who_does_not_end_a_request_is_let_go(server, monkeypatch, begun):
    """300 sockets that said half a word were still there after a minute."""
    monkeypatch.setattr(transport, "HEAD_LIMIT_S", 0.2)
    reader, writer = await connect(server)
    writer.write(begun)
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def test_a_second_request_that_does_not_end_is_let_go_too(server, monkeypatch):
    monkeypatch.setattr(transport, "HEAD_LIMIT_S", 0.2)
    reader, writer = await connect(server)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"GET /healthz HTTP/1.1\r\n")
    async with asyncio.timeout(3):
        with contextlib.suppress(ConnectionError):
            await reader.read()
    writer.close()


async def asked_for_a_large_file(start, tmp_path):
    """A server that began to answer with 16 MB, and the streams of who asked for them."""
    (tmp_path / "index.html").write_text("a page")
    (tmp_path / "large.bin").write_bytes(b"x" * LARGE)
    server = await start(web_client=tmp_path)
    reader, writer = await connect(server)
    writer.write(b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    return server, reader, writer


async def test_who_takes_nothing_of_an_answer_is_let_go(start, tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "TAKE_LIMIT_S", 0.3)
    # The stream reader stops taking at twice its limit, and the kernel holds some megabytes.
    server, _, writer = await asked_for_a_large_file(start, tmp_path)
    async with asyncio.timeout(10):
        while server.web.server_state.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    writer.close()


async def test_an_answer_that_is_taken_slowly_comes_whole(start, tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "TAKE_LIMIT_S", 1.5)
    _, reader, writer = await asked_for_a_large_file(start, tmp_path)
    left = LARGE
    while left:
        piece = await reader.read(400_000)
        assert piece
        left -= len(piece)
        # A slow line, not a wait for something: each piece takes a while.
        await asyncio.sleep(0.02)
    writer.close()
