"""Frames between client and engine: whole messages or the end of the connection."""

import asyncio

import pytest

from engine import wire
from engine.api import Message, Turn


def stream(data, *, ends=True):
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    if ends:
        reader.feed_eof()
    return reader


async def test_a_message_comes_back_as_it_was():
    turn = Turn(
        id="t", session="s", tenant="c", messages=(Message(role="user", text="糖 🎉"),), stop=("#",)
    )
    request = wire.Submit(7, turn)
    reader = stream(wire.frame(request) + wire.frame(wire.Cancel(8, "t")))
    assert wire.requests.decode(await wire.read_frame(reader)) == request
    assert wire.requests.decode(await wire.read_frame(reader)) == wire.Cancel(8, "t")
    assert await wire.read_frame(reader) is None


@pytest.mark.parametrize("length", [0, 3, 9])
async def test_a_torn_frame_is_the_end(length):
    assert await wire.read_frame(stream(wire.frame(wire.Cancel(8, "turn"))[:length])) is None


async def test_a_frame_beyond_the_limit_is_refused_before_it_is_read():
    header = (wire.MAX_FRAME_BYTES + 1).to_bytes(4, "big")
    with pytest.raises(wire.BrokenFrame):
        await wire.read_frame(stream(header, ends=False))


def test_a_message_beyond_the_limit_is_not_sent():
    with pytest.raises(ValueError, match="exceeds"):
        wire.frame(wire.Feed(1, "m", bytes(wire.MAX_FRAME_BYTES), 0))
