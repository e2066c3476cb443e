"""The client joins, acts, asks and fetches; a server that misbehaves follows a script."""

import asyncio
import http

import pytest

import consilium
from protocol import events as ev
from protocol import messages as ms
from protocol.errors import BadMessage, ErrorCode
from protocol.shapes import PointMark, Rectangle
from protocol.state import Person
from tests.support.scripted_server import AT, MEI, comment, join, scripted, serve_quietly

BOX = Rectangle(x=1.0, y=2.0, width=3.0, height=4.0)


async def test_it_joins_and_leaves():
    async with scripted(serve_quietly) as server:
        async with join(server, department="Radiology", session="s" * 32) as room:
            assert room.connected
            assert room.welcome.participant == "p-mei"
        assert not room.connected
        await server.peers[0].socket.wait_closed()
        assert server.peers[0].socket.close_code == 1000
    (hello,) = server.hellos
    assert (hello.name, hello.department, hello.session) == ("Mei", "Radiology", "s" * 32)
    assert hello.resume is None and hello.token is None


async def test_it_can_be_awaited_too():
    async with scripted(serve_quietly) as server:
        room = await join(server)
        await room.close()
        await room.close()


async def test_joining_waits_until_the_state_is_whole():
    async def act(peer):
        await peer.welcome(head=2)
        await peer.tell(comment("c-1"))
        await peer.say(ms.Heartbeat(head=2, t=1.0))
        await peer.hear(ms.HeartbeatAck)
        await peer.tell(comment("c-2"))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        assert list(room.state.comments) == ["c-1", "c-2"]


async def test_events_come_in_order_and_end_with_the_room():
    async def act(peer):
        await peer.welcome()
        await peer.hear(ms.Op)
        for n in range(3):
            await peer.tell(comment(f"c-{n}"))
        await peer.say(ms.Ack(op_id=peer.heard[-1].op_id, seq=3))
        await peer.stay()

    async with scripted(act) as server:
        async with join(server) as room:
            listening = room.events()
            assert await room.comment("hello") == 3
            assert [(await anext(listening)).id for _ in range(3)] == ["c-0", "c-1", "c-2"]
        assert [event async for event in listening] == []


async def test_a_reader_that_falls_behind_is_told_and_delays_nobody(monkeypatch):
    monkeypatch.setattr("protocol.surroundings.MAX_WAITING_EVENTS", 2)

    async def act(peer):
        await peer.welcome()
        await peer.hear(ms.Presence)
        for n in range(4):
            await peer.tell(comment(f"c-{n}"))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        slow = room.events()
        room.presence()
        await room.until(lambda: room.state.seq == 4)
        with pytest.raises(consilium.FellBehind):
            await anext(slow)
        assert len(room.state.comments) == 4


async def test_a_refused_op_raises_with_its_code():
    async def act(peer):
        await peer.welcome()
        op = await peer.hear(ms.Op)
        await peer.say(
            ms.Nack(op_id=op.op_id, code=ErrorCode.ASSET_UNKNOWN, message="no", retry_after=1.5)
        )
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        with pytest.raises(consilium.Refused) as refused:
            await room.annotate("as-9", BOX, label="nodule?")
        assert refused.value.code is ErrorCode.ASSET_UNKNOWN
        assert refused.value.retry_after_s == 1.5


async def test_an_act_that_comes_too_fast_is_sent_again_when_it_may():
    async def act(peer):
        await peer.welcome()
        op = await peer.hear(ms.Op)
        refused_at = asyncio.get_running_loop().time()
        await peer.say(
            ms.Nack(op_id=op.op_id, code=ErrorCode.RATE_LIMITED, message="", retry_after=0.1)
        )
        again = await peer.hear(ms.Op)
        assert again == op
        assert asyncio.get_running_loop().time() - refused_at >= 0.09
        await peer.say(ms.Ack(op_id=op.op_id, seq=4))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        assert await room.comment("hasty") == 4


@pytest.mark.parametrize("text", ["x" * 16_001, "a\0b", "\ud83d"])
async def test_an_act_that_the_server_could_not_read_is_never_sent(text):
    async with scripted(serve_quietly) as server:
        async with join(server) as room:
            with pytest.raises(BadMessage):
                await room.comment(text)
        await server.peers[0].socket.wait_closed()
        assert [type(message) for message in server.peers[0].heard] == [ms.Hello]


async def test_every_act_becomes_its_op():
    async def act(peer):
        await peer.welcome()
        for seq in range(1, 6):
            op = await peer.hear(ms.Op)
            await peer.say(ms.Ack(op_id=op.op_id, seq=seq))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        await room.annotate("as-1", BOX, mark="a-1", severity="critical")
        await room.patch(ms.PatchAnnotation(id="a-1", shape=PointMark(x=1.0, y=1.0)))
        await room.delete("a-1")
        await room.restore("a-1")
        await room.comment("seen", asset="as-1")
        ops = [message.op for message in server.peers[0].heard if isinstance(message, ms.Op)]
    assert [type(op) for op in ops] == [
        ms.PutAnnotation,
        ms.PatchAnnotation,
        ms.DeleteAnnotation,
        ms.RestoreAnnotation,
        ms.AddComment,
    ]
    assert ops[0].annotation.severity == "critical" and ops[4].target.asset == "as-1"


async def test_presence_sends_the_newest_and_people_are_known():
    async def act(peer):
        await peer.welcome()
        otto = Person(participant="p-otto", name="Otto")
        await peer.say(ms.PresenceState(person=otto))
        while (await peer.hear(ms.Presence)).x != 99.0:
            pass
        await peer.tell(comment("seen"))
        while not (await peer.hear(ms.Presence)).typing:
            pass
        await peer.say(ms.PresenceGone(participant="p-otto"))
        await peer.tell(comment("gone"))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        for x in range(100):
            room.presence("as-1", float(x), 1.0)
        await room.until(lambda: room.state.seq >= 1)
        assert room.people["p-otto"].name == "Otto"
        room.presence(typing=True)
        await room.until(lambda: room.state.seq == 2)
        assert room.people == {}
        sent = [m for m in server.peers[0].heard if isinstance(m, ms.Presence)]
        # 100 at once become the first and the newest of them, then the one above.
        assert len(sent) <= 3


def delta(turn, offset, text):
    return ev.TurnDelta(at=AT, actor=MEI, turn=turn, offset=offset, text=text)


async def start(peer):
    ask = await peer.hear(ms.Ask)
    started = ev.TurnStarted(at=AT, actor=MEI, turn=ask.turn, question=ask.text)
    await peer.say(ms.Ack(op_id=ask.turn, seq=await peer.tell(started)))
    return ask


def finished(turn):
    return ev.TurnDone(
        at=AT,
        actor=MEI,
        turn=turn,
        finish="stop",
        text_sha256="0" * 64,
        prompt_tokens=1,
        answer_tokens=1,
        cached_tokens=0,
    )


async def test_an_answer_streams_to_its_end():
    async def act(peer):
        await peer.welcome()
        ask = await start(peer)
        assert (ask.text, ask.assets, ask.max_tokens) == ("why?", ("as-1",), 9)
        await peer.tell(delta(ask.turn, 0, "be"))
        await peer.tell(delta(ask.turn, 2, "cause 👩‍⚕️"))
        await peer.tell(finished(ask.turn))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        turn = await room.ask("why?", assets=["as-1"], max_tokens=9)
        assert "".join([text async for text in turn]) == "because 👩‍⚕️"
        assert (await turn.done()).finish == "stop"
        assert "".join([text async for text in turn]) == "because 👩‍⚕️"


async def test_an_answer_goes_on_after_a_reconnect_without_a_gap():
    turns = []

    async def first(peer):
        await peer.welcome()
        ask = await start(peer)
        turns.append(ask.turn)
        await peer.tell(delta(ask.turn, 0, "one "))
        peer.drop()

    async def second(peer):
        await peer.welcome()
        await peer.tell(delta(turns[0], 4, "two"))
        await peer.tell(finished(turns[0]))
        await peer.stay()

    async with scripted(first, second) as server, join(server) as room:
        turn = await room.ask("count")
        assert "".join([text async for text in turn]) == "one two"


async def test_a_failed_answer_raises_and_keeps_what_was_delivered():
    async def act(peer):
        await peer.welcome()
        ask = await start(peer)
        await peer.tell(delta(ask.turn, 0, "par"))
        await peer.tell(
            ev.TurnFailed(
                at=AT, actor=MEI, turn=ask.turn, code=ErrorCode.ENGINE_LOST, message="lost"
            )
        )
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        turn = await room.ask("why?")
        assert "".join([text async for text in turn]) == "par"
        with pytest.raises(consilium.AnswerFailed) as failed:
            await turn.done()
        assert failed.value.code is ErrorCode.ENGINE_LOST
        assert turn.state.text == "par"


async def test_cancelling_an_answer_ends_it_as_cancelled():
    async def act(peer):
        await peer.welcome()
        ask = await start(peer)
        assert (await peer.hear(ms.Cancel)).turn == ask.turn
        await peer.tell(ev.TurnCancelled(at=AT, actor=MEI, turn=ask.turn))
        await peer.stay()

    async with scripted(act) as server, join(server) as room:
        turn = await room.ask("why?")
        await turn.cancel()
        assert (await turn.done()).status == "cancelled"


async def test_pictures_and_records_are_fetched_with_the_newest_ticket():
    asked = []

    def serve_http(connection, request):
        if request.path == "/v1/rooms/ward-3":
            return None
        asked.append(request.path)
        return connection.respond(http.HTTPStatus.OK, '{"prompt":"p"}')

    async def act(peer):
        await peer.welcome()
        await peer.hear(ms.Presence)
        await peer.say(
            ms.Access(media=ms.MediaAccess(base="/v2/assets", ticket="new", expires_at=AT))
        )
        await peer.tell(comment("ticket"))
        await peer.stay()

    async with scripted(act, process_request=serve_http) as server, join(server) as room:
        assert await room.fetch_level("as-1", 256) == b'{"prompt":"p"}'
        assert await room.fetch_turn_record("t-1") == {"prompt": "p"}
        room.presence()
        await room.until(lambda: room.state.seq == 1)
        await room.fetch_original("as-1")
    assert asked == [
        "/v1/assets/as-1/levels/256?ticket=tk",
        "/v1/rooms/ward-3/turns/t-1?ticket=tk",
        "/v2/assets/as-1/original?ticket=new",
    ]
