"""Calls over one connection: replies find their call, and a loss ends every one of them."""

import asyncio

import pytest

from engine import wire
from engine.api import EngineCode, EngineError, Message, Turn
from engine.link import Link


@pytest.fixture
async def pair(tmp_path):
    """A link and the far end's reader and writer."""
    far = asyncio.get_running_loop().create_future()
    server = await asyncio.start_unix_server(lambda *ends: far.set_result(ends), tmp_path / "s")
    reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
    link = Link(writer)
    reading = asyncio.create_task(link.read_until_lost(reader))
    far_reader, far_writer = await far
    yield link, far_reader, far_writer
    link.lose()
    far_writer.close()
    await reading
    server.close()


async def request(reader):
    return wire.requests.decode(await wire.read_frame(reader))


async def test_replies_find_their_calls_in_any_order(pair):
    link, reader, writer = pair
    first = asyncio.create_task(link.ask(lambda call: wire.Cancel(call, "a")))
    second = asyncio.create_task(link.ask(lambda call: wire.Cancel(call, "b")))
    calls = {(asked := await request(reader)).turn: asked.call for _ in range(2)}
    writer.write(wire.frame(wire.Answered(calls["b"], found=True)))
    writer.write(wire.frame(wire.Answered(9999)))
    writer.write(wire.frame(wire.Answered(calls["a"], found=False)))
    assert not (await first).found and (await second).found


async def test_a_refusal_is_raised_with_its_code(pair):
    link, reader, writer = pair
    asked = asyncio.create_task(link.ask(wire.AskStats))
    call = (await request(reader)).call
    writer.write(wire.frame(wire.Refused(call, EngineCode.OVERLOADED, "full")))
    with pytest.raises(EngineError) as refused:
        await asked
    assert refused.value.code is EngineCode.OVERLOADED


async def test_a_loss_ends_calls_in_flight_and_those_that_come_later(pair):
    link, reader, writer = pair
    asked = asyncio.create_task(link.ask(wire.AskStats))
    await request(reader)
    link.lose()
    for call in (asked, asyncio.create_task(link.ask(wire.AskStats))):
        with pytest.raises(EngineError) as lost:
            await call
        assert lost.value.code is EngineCode.ENGINE_LOST


async def test_a_stream_left_early_is_abandoned(pair):
    link, reader, writer = pair
    with link.stream() as stream:
        link.write(wire.Drop(stream.call, "s"))
    assert isinstance(await request(reader), wire.Drop)
    assert await request(reader) == wire.Abandon(stream.call)


async def test_a_request_beyond_the_frame_is_refused_here(pair):
    link, _, _ = pair
    text = "x" * (wire.MAX_FRAME_BYTES + 1)
    turn = Turn(id="t", session="s", tenant="c", messages=(Message(role="user", text=text),))
    with pytest.raises(EngineError) as refused:
        await link.ask(lambda call: wire.Submit(call, turn))
    assert refused.value.code is EngineCode.CONTEXT_FULL
