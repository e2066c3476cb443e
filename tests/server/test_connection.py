"""The eight traps of the stack, and what a socket does at its ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest
from websockets.exceptions import ConnectionClosed

from tests.support.slow_socket import SlowSocket


async def flood(talker, count):
    for number in range(count):
        op = {"type": "comment.add", "id": f"c{number}", "text": "x" * 15_000}
        await talker.say(type="op", op_id=f"o{number}", op=op)
    await talker.until(lambda: talker.seqs()[-1:] == [count])


async def test_trap1_R54_a_client_that_never_reads_costs_its_budget_and_no_more(start):
    """uvicorn 0.50-0.52.0 buffered everything that was sent to such a client."""
    server = await start(outbox_bytes=256 * 1024, messages_per_s=1e6, messages_burst=10**6)
    slow = await SlowSocket.join(server.port, "ward-7")
    talker = await server.join("Wu")
    # The kernel itself takes some megabytes on loopback.
    await flood(talker, 800)
    held = server.server.hub.connections[1]
    assert held.outbox.is_behind
    assert held.outbox.size_bytes <= 256 * 1024
    assert held.buffered_bytes < 256 * 1024
    assert talker.seqs() == list(range(1, 801))
    slow.close()


async def test_trap2_a_binary_frame_where_text_was_meant_is_answered_and_the_socket_lives(server):
    client = await server.join()
    await client.socket.send(b"not a media frame")
    assert (await client.hear("error"))["code"] == "bad_frame"
    assert (await client.comment("c1"))["type"] == "ack"


async def test_trap3_L61_a_busy_room_does_not_stop_the_reading_of_pongs(start):
    """uvicorn pauses reading while a message waits for the app."""
    server = await start(messages_per_s=1e6, messages_burst=10**6)
    client = await server.join()
    for number in range(300):
        await client.say(
            type="op",
            op_id=f"o{number}",
            op={"type": "comment.add", "id": f"c{number}", "text": "x"},
        )
    pong = await client.socket.ping()
    async with asyncio.timeout(1.0):
        await pong
    await client.answer("o299")


async def test_trap5_L66_L68_R56_a_message_above_the_largest_frame_is_closed_by_the_transport_alone(
    server,
):
    """`ws_max_size` is said in one place; deflate is off, so sizes are what they seem."""
    other = await server.join("Wu")
    client = await server.join()
    assert "permessage-deflate" not in str(client.socket.response.headers)
    try:
        await client.socket.send("x" * (9 * 1024 * 1024))
    except ConnectionClosed:
        pass
    assert await client.closed() == 1009
    assert (await other.comment("c1"))["type"] == "ack"


async def test_trap7_L66_R57_a_message_just_over_the_text_limit_is_told_its_size(server):
    client = await server.join()
    await client.socket.send(json.dumps({"type": "presence", "pad": "x" * (256 * 1024)}))
    assert (await client.hear("error"))["code"] == "too_big"
    await client.socket.send("y" * (5 * 1024 * 1024))
    await client.until(lambda: len([m for m in client.heard if m["type"] == "error"]) == 2)
    assert (await client.comment("c1"))["type"] == "ack"


async def test_trap6_a_wedged_client_is_dropped_after_the_send_deadline(start):
    server = await start(
        outbox_bytes=128 * 1024,
        send_deadline_s=0.5,
        heartbeat_s=5.0,
        messages_per_s=1e6,
        messages_burst=10**6,
    )
    slow = await SlowSocket.join(server.port, "ward-7")
    talker = await server.join("Wu")
    await flood(talker, 800)
    started = time.monotonic()
    while len(server.server.hub.connections) > 1:
        await asyncio.sleep(0.02)
        assert time.monotonic() - started < 5
    slow.close()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (r'{"type":"cancel","turn":"\ud83d"}', "not_storable"),
        ('{"type":"presence","x":99999999999999999999999}', "not_storable"),
        ("[" * 10_000 + "]" * 10_000, "too_deep"),
        ("{nonsense", "bad_json"),
        ('{"type":"no.such"}', "unknown_type"),
        ('{"type":"op","op_id":1}', "bad_message"),
        ('{"type":"cancel","turn":"t","extra":1}', "bad_message"),
    ],
)
async def test_trap8_what_cannot_be_stored_is_refused_at_the_border(server, value, code):
    client = await server.join()
    await client.socket.send(value)
    assert (await client.hear("error"))["code"] == code
    assert (await client.comment("c1"))["seq"] == 1
    late = await server.join("Wu")
    assert late.welcome["snapshot"]["seq"] == 1


async def test_L17_what_is_said_before_the_welcome_is_done_in_its_order(server):
    client = await server.open()
    said = [{"type": "hello", "session": "s" * 16, "client": "t"}]
    said += [
        {"type": "op", "op_id": f"o{n}", "op": {"type": "comment.add", "id": f"c{n}", "text": "x"}}
        for n in range(3)
    ]
    for message in said:
        await client.socket.send(json.dumps(message))
    await client.answer("o2")
    assert client.heard[0]["type"] == "welcome"
    assert [event["op_id"] for event in client.events()] == ["o0", "o1", "o2"]


async def test_L71_the_welcome_is_always_the_first_message(server):
    talker = await server.join("Wu")
    for number in range(100):
        asking = asyncio.create_task(talker.comment(f"c{number}"))
        client = await server.join("Mei")
        assert client.heard[0]["type"] == "welcome"
        await asking
        await client.close()


async def test_L70_R50_who_connects_and_leaves_at_once_leaves_nothing(server):
    for number in range(100):
        client = await server.open()
        if number % 2:
            await client.say(type="hello", session=f"session-{number:010d}", client="t")
        if number % 3:
            client.cut()
        else:
            await client.close()
    hub = server.server.hub
    async with asyncio.timeout(5):
        while hub.connections or any(  # noqa: ASYNC110
            hosted.room.members for hosted in hub.rooms()
        ):
            await asyncio.sleep(0.01)
    assert all(hosted.holds == 0 for hosted in hub.rooms())


async def test_the_first_message_must_be_hello(server):
    client = await server.open()
    await client.say(type="presence")
    assert (await client.hear("error"))["code"] == "out_of_turn"
    assert await client.closed() == 4400


async def test_a_client_that_answers_no_heartbeat_is_let_go(start):
    server = await start(heartbeat_s=0.1)
    client = await server.join()
    client.answers_heartbeats = False
    assert (await client.hear("error"))["code"] == "too_slow"
    assert await client.closed() == 4458


async def test_a_heartbeat_tells_the_rooms_head(start):
    server = await start(heartbeat_s=0.1)
    client = await server.join()
    await client.comment("c1")
    assert await client.hear("heartbeat", head=1)


async def test_a_page_of_another_origin_is_told_so_and_closed(server):
    client = await server.open(origin="http://evil.example")
    error = await client.hear("error")
    assert (error["code"], error["fatal"]) == ("forbidden", True)
    assert await client.closed() == 4403


async def test_a_rebound_name_does_not_open_an_open_server(server):
    client = await server.open(
        origin="http://evil.example", additional_headers={"Host": "evil.example"}
    )
    assert await client.closed() == 4403


async def test_L63_R55_R59_a_paused_client_delays_nobody_and_catches_up_when_it_reads_on(start):
    server = await start(messages_per_s=1e6, messages_burst=10**6, resume_events=100_000)
    slow = await SlowSocket.join(server.port, "ward-7")
    talker, other = await server.join("Wu"), await server.join("Mei")
    worst_s = 0.0
    for number in range(500):
        sent_at = time.monotonic()
        await talker.comment(f"c{number}", "x" * 15_000)
        await other.until(lambda n=number: other.seqs()[-1:] >= [n + 1])
        worst_s = max(worst_s, time.monotonic() - sent_at)
    paused = server.server.hub.connections[1]
    assert paused.outbox.is_behind and paused.outbox.size_bytes < 2 * 1024 * 1024
    assert worst_s < 1.0
    async with asyncio.timeout(30):
        while paused.outbox.sent_seq < 500:
            assert await slow.read(1 << 20)
    slow.close()


async def test_who_says_no_hello_is_let_go(start):
    server = await start(hello_timeout_s=0.1)
    client = await server.open()
    assert (await client.hear("error"))["code"] == "hello_timeout"
    assert await client.closed() == 4450


async def test_who_goes_on_far_beyond_the_rate_is_closed_and_may_come_back(start):
    server = await start(messages_per_s=0.1, messages_burst=1)
    client = await server.join()
    with contextlib.suppress(ConnectionClosed):
        for number in range(2_100):
            await client.say(type="cancel", turn=f"t{number}")
    assert await client.closed() == 4459


async def test_who_goes_on_making_mistakes_is_closed_and_may_come_back(start):
    """Mistakes had no rate: 20,000 of them were answered one by one."""
    server = await start(messages_per_s=0.1, messages_burst=1)
    client = await server.join()
    with contextlib.suppress(ConnectionClosed):
        for _ in range(2_100):
            await client.socket.send("{")
    assert await client.closed() == 4459
    assert len([m for m in client.heard if m["type"] == "error"]) == 1


async def test_L62_who_sends_what_is_costly_to_read_delays_nobody(start):
    """A hundred frames of brackets, 60 ms of reading each, held everybody up for seconds."""
    server = await start(messages_per_s=1)
    flooder, other = await server.join("Wu"), await server.join("Mei")
    costly = "[" + "[]," * 60_000 + "{"

    async def flood_with_it() -> None:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(100):
                await flooder.socket.send(costly)

    flooding = asyncio.create_task(flood_with_it())
    await flooder.hear("error", code="bad_json")
    for number in range(100):
        assert (await other.comment(f"c{number}"))["type"] == "ack"
    assert len([m for m in flooder.heard if m["type"] == "error"]) < 50
    flooding.cancel()
    await asyncio.gather(flooding, return_exceptions=True)


async def test_one_connection_too_many_is_told_when_to_come_back(start):
    server = await start(max_connections=2)
    first = await server.join("Mei")
    await server.join("Wu")
    client = await server.open()
    error = await client.hear("error")
    assert (error["code"], error["fatal"]) == ("overloaded", True) and error["retry_after"] > 0
    assert await client.closed() == 4450
    assert (await first.comment("c1"))["type"] == "ack"


async def test_one_room_too_many_is_refused_and_those_that_are_there_stay_open(start):
    server = await start(max_rooms=1)
    await server.join("Mei")
    client = await server.open("another")
    await client.say(type="hello", session="s" * 20, client="t")
    assert (await client.hear("error"))["code"] == "overloaded"
    assert await client.closed() == 4450
    assert (await server.join("Wu")).welcome["room"] == "ward-7"
