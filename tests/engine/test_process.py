"""What a foreign or broken client sends costs its own connection and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from engine import wire
from engine.api import Message, Turn, TurnDone
from engine.process import EngineServer


@pytest.fixture
async def socket(tiny, make_engine, tmp_path):
    async with make_engine(tiny) as engine:
        path = tmp_path / "s"
        server = await asyncio.start_unix_server(EngineServer(engine).serve, path=path)
        async with server:
            yield path


async def asked(path, *requests):
    """Send requests, return the reader and the writer."""
    reader, writer = await asyncio.open_unix_connection(path)
    for request in requests:
        writer.write(wire.frame(request))
    await writer.drain()
    return reader, writer


async def reply(reader):
    body = await wire.read_frame(reader)
    return wire.replies.decode(body) if body is not None else None


def turn(name="t", length=2):
    messages = (Message(role="user", text="?"),)
    return Turn(id=name, session=name, tenant="c", messages=messages, max_new_tokens=length)


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x00"],
)
async def test_garbage_ends_that_connection_alone(socket, garbage):
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(garbage)
    await writer.drain()
    assert await reply(reader) is None
    writer.close()
    good, good_writer = await asked(socket, wire.Submit(1, turn()))
    events = []
    while not events or not isinstance(events[-1].event, TurnDone):
        events.append(await reply(good))
    assert {event.call for event in events} == {1}
    good_writer.close()


async def test_a_refused_call_is_answered_and_the_next_one_works(socket):
    reader, writer = await asked(socket, wire.Cancel(1, "nothing"), wire.AskHealth(2))
    answers = {answer.call: answer for answer in [await reply(reader), await reply(reader)]}
    assert answers[1] == wire.Answered(1, found=False)
    assert answers[2].health.ready
    writer.close()


async def test_L03_a_connection_that_is_cut_frees_its_slots(socket):
    reader, writer = await asked(socket, wire.Submit(1, turn("long", 900)))
    await reply(reader)
    writer.transport.abort()
    good, good_writer = await asked(socket)
    async with asyncio.timeout(5):
        running = 1.0
        while running:
            good_writer.write(wire.frame(wire.AskStats(5)))
            running = (await reply(good)).stats.gauges["turns_running"]
    good_writer.close()


async def test_E41_an_abandoned_call_is_cancelled(socket):
    reader, writer = await asked(socket, wire.Submit(1, turn("long", 900)))
    await reply(reader)
    writer.write(wire.frame(wire.Abandon(1)) + wire.frame(wire.Abandon(99)))
    async with asyncio.timeout(5):
        counters = {}
        while not counters.get("turns_cancelled"):
            writer.write(wire.frame(wire.AskStats(5)))
            while not isinstance(answer := await reply(reader), wire.HasStats):
                pass
            counters = answer.stats.counters
    writer.close()
