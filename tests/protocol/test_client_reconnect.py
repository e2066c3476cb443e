"""Over lost connections the client loses nothing, doubles nothing and knows when to stay away."""

import asyncio
import http
import itertools

import pytest

import consilium
from protocol import events as ev
from protocol import messages as ms
from protocol.errors import ErrorCode
from protocol.room import RoomState
from protocol.state import Snapshot
from tests.support.scripted_server import AT, MEI, comment, join, scripted, serve_quietly


async def test_r35_an_op_whose_ack_was_lost_is_sent_again_with_its_id():
    async def lose(peer):
        await peer.welcome()
        await peer.hear(ms.Op)
        peer.drop()

    async def answer(peer):
        await peer.welcome()
        op = await peer.hear(ms.Op)
        await peer.say(ms.Ack(op_id=op.op_id, seq=7))
        await peer.stay()

    async with scripted(lose, lose, answer) as server, join(server) as room:
        assert await room.comment("once") == 7
        sent = [m for peer in server.peers for m in peer.heard if isinstance(m, ms.Op)]
        assert len(sent) == 3 and len({op.op_id for op in sent}) == 1


async def test_r22_each_resume_asks_from_where_the_client_stands():
    async def first(peer):
        await peer.welcome()
        await peer.hear(ms.Presence)
        await peer.tell(comment("c-1"))
        await peer.tell(comment("c-2"))
        await peer.close(1012)

    async def second(peer):
        await peer.welcome()
        peer.drop()

    async def third(peer):
        await peer.welcome()
        await peer.say(ev.CommentAdded(at=AT, actor=MEI, id="c-2", text="c-2", seq=2, epoch="e1"))
        await peer.tell(comment("c-3"))
        await peer.stay()

    async with scripted(first, second, third) as server, join(server) as room:
        listening = room.events()
        room.presence()
        await room.until(lambda: room.state.seq == 3)
        seen = [(await anext(listening)).seq for _ in range(3)]
    assert seen == [1, 2, 3]
    positions = [hello.resume and (hello.resume.epoch, hello.resume.seq) for hello in server.hellos]
    assert positions == [None, ("e1", 2), ("e1", 2)]
    assert len({hello.session for hello in server.hellos}) == 1


async def test_r23_a_drop_right_after_the_welcome_resumes_from_its_snapshot():
    async def first(peer):
        await peer.welcome(head=9, snapshot=Snapshot(seq=9, epoch="e1"))
        peer.drop()

    async with scripted(first, serve_quietly) as server:
        server.seq = 9
        async with join(server) as room:
            await room.until(lambda: len(server.hellos) == 2 and room.connected)
    assert server.hellos[1].resume == ms.Position(epoch="e1", seq=9)


async def test_l12_a_drop_before_any_welcome_joins_afresh():
    async def drop_at_once(peer):
        peer.drop()

    async def drop_after_hello(peer):
        await peer.hear(ms.Hello)
        peer.drop()

    async with scripted(drop_at_once, drop_after_hello, serve_quietly) as server:
        async with join(server):
            assert [hello.resume for hello in server.hellos] == [None]


async def test_r40_a_new_epoch_replaces_the_state_and_resends_only_what_is_unacknowledged():
    async def before(peer):
        await peer.welcome()
        await peer.tell(comment("old"))
        op = await peer.hear(ms.Op)
        await peer.say(ms.Ack(op_id=op.op_id, seq=2))
        await peer.hear(ms.Op)
        await peer.close(1012)

    async def after(peer):
        whole = RoomState(epoch="e2", seq=5)
        await peer.welcome(epoch="e2", head=5, snapshot=whole.snapshot())
        op = await peer.hear(ms.Op)
        await peer.say(ms.Ack(op_id=op.op_id, seq=6))
        await peer.stay()

    async with scripted(before, after) as server, join(server) as room:
        replaced = room.events(ms.Welcome)
        await room.comment("acknowledged")
        await room.comment("in flight")
        assert (await anext(replaced)).epoch == "e2"
        assert (room.state.epoch, room.state.seq) == ("e2", 5)
        assert room.state.comments == {}
    again = [message.op.text for message in server.peers[1].heard if isinstance(message, ms.Op)]
    assert again == ["in flight"]


async def test_r40_a_missing_event_makes_the_client_come_back():
    async def skip(peer):
        await peer.welcome()
        peer.server.seq = 1
        await peer.tell(comment("c-2"))
        await peer.stay()

    async def whole(peer):
        peer.server.seq = 0
        await peer.welcome(head=2)
        await peer.tell(comment("c-1"))
        await peer.tell(comment("c-2"))
        await peer.stay()

    async with scripted(skip, whole) as server, join(server) as room:
        await room.until(lambda: room.state.seq == 2)
        assert list(room.state.comments) == ["c-1", "c-2"]


async def test_r47_every_connection_brings_a_token_and_the_newest_one():
    tokens = iter(["one", "two", "three"])

    async def fetch_token():
        return next(tokens)

    async def drop(peer):
        await peer.welcome()
        peer.drop()

    async with scripted(drop, drop, serve_quietly) as server:
        async with join(server, token=fetch_token) as room:
            await room.until(lambda: len(server.hellos) == 3 and room.connected)
    assert [hello.token for hello in server.hellos] == ["one", "two", "three"]


async def test_r47_a_token_that_cannot_be_had_now_is_asked_for_again():
    asked = []

    async def fetch_token():
        asked.append(1)
        if len(asked) == 2:
            raise RuntimeError("the issuer is down")
        return "token"

    async def drop(peer):
        await peer.welcome()
        peer.drop()

    async with scripted(drop, serve_quietly) as server:
        async with join(server, token=fetch_token) as room:
            await room.until(lambda: len(server.hellos) == 2 and room.connected)
    assert len(asked) == 3


async def test_r35_a_welcome_that_cannot_be_read_is_a_fault_that_is_told():
    async def garble(peer):
        await peer.hear(ms.Hello)
        await peer.socket.send('{"type":"welcome"}')
        await peer.stay()

    async with scripted(garble) as server:
        with pytest.raises(consilium.Disconnected, match="BadMessage"):
            await join(server, open_timeout_s=0.5)


async def test_r47_a_refreshed_token_is_used_for_the_next_connection():
    async def refreshed(peer):
        await peer.welcome()
        assert (await peer.hear(ms.Refresh)).token == "new"
        peer.drop()

    async with scripted(refreshed, serve_quietly) as server:
        async with join(server, token="old") as room:
            await room.refresh("new")
            await room.until(lambda: len(server.hellos) == 2 and room.connected)
    assert [hello.token for hello in server.hellos] == ["old", "new"]


async def test_r26_a_replaced_session_does_not_fight_for_its_place():
    async def replace(peer):
        await peer.welcome()
        await peer.say(ms.Error(code=ErrorCode.REPLACED, message="newer", fatal=True))
        await peer.close(4409)

    async with scripted(replace) as server, join(server) as room:
        with pytest.raises(consilium.Disconnected) as ended:
            await room.comment("who am I")
        assert (ended.value.close_code, ended.value.code) == (4409, ErrorCode.REPLACED)
        assert len(server.arrivals) == 1


@pytest.mark.parametrize("code", [4400, 4401, 4403, 4413])
async def test_l16_a_close_that_says_do_not_come_back_is_obeyed(code):
    async def refuse(peer):
        await peer.hear(ms.Hello)
        await peer.say(ms.Error(code=ErrorCode.UNAUTHENTICATED, message="no", fatal=True))
        await peer.close(code)

    async with scripted(refuse) as server:
        with pytest.raises(consilium.Disconnected) as ended:
            await join(server)
        assert (ended.value.close_code, ended.value.code) == (code, ErrorCode.UNAUTHENTICATED)
        assert len(server.arrivals) == 1


@pytest.mark.parametrize("status, tries", [(401, 1), (403, 1), (404, 1), (503, 2)])
async def test_l16_a_refused_upgrade_ends_unless_it_passes(status, tries):
    asked = []

    def refuse(connection, request):
        asked.append(request.path)
        if len(asked) < 2:
            return connection.respond(http.HTTPStatus(status), "no\n")
        return None

    async with scripted(serve_quietly, process_request=refuse) as server:
        if tries == 1:
            with pytest.raises(consilium.Disconnected, match=str(status)):
                await join(server)
        else:
            async with join(server):
                pass
    assert len(asked) == tries


@pytest.mark.parametrize("code", [4450, 4453, 4458, 4459, 1000, 1012])
async def test_a_close_that_says_come_back_is_obeyed(code):
    async def send_away(peer):
        await peer.welcome()
        await peer.close(code)

    async with scripted(send_away, serve_quietly) as server, join(server) as room:
        await room.until(lambda: len(server.hellos) == 2 and room.connected)


async def test_r13_a_welcome_ends_the_back_off(monkeypatch):
    monkeypatch.setattr("random.random", lambda: 0.999)

    async def drop(peer):
        await peer.welcome()
        peer.drop()

    async with scripted(drop, drop, drop, serve_quietly) as server, join(server) as room:
        await room.until(lambda: len(server.hellos) == 4 and room.connected)
    gaps = [later - sooner for sooner, later in itertools.pairwise(server.arrivals)]
    assert all(0.4 < gap < 0.9 for gap in gaps), gaps


async def test_l15_goaway_makes_the_client_move_before_it_is_dropped():
    async def drain(peer):
        await peer.welcome()
        await peer.tell(comment("c-1"))
        await peer.say(ms.Goaway(retry_after=0.2))
        await peer.tell(comment("c-2"))
        await peer.stay()

    async with scripted(drain, serve_quietly) as server, join(server) as room:
        await room.until(lambda: len(server.hellos) == 2 and room.connected)
        assert server.peers[0].socket.close_code == 1000
        assert server.arrivals[1] - server.arrivals[0] >= 0.2
    assert server.hellos[1].resume == ms.Position(epoch="e1", seq=2)


async def test_r53_a_server_that_names_a_time_is_not_asked_before_it():
    async def drain(peer):
        await peer.welcome()
        await peer.say(
            ms.Error(code=ErrorCode.DRAINING, message="bye", fatal=True, retry_after=0.4)
        )
        await peer.close(4453)

    async with scripted(drain, serve_quietly) as server, join(server) as room:
        await room.until(lambda: len(server.hellos) == 2 and room.connected)
        assert server.arrivals[1] - server.arrivals[0] >= 0.4


async def test_a_silent_server_is_left_after_three_heartbeats():
    async def fall_silent(peer):
        await peer.welcome(heartbeat_s=0.1)
        await peer.stay()

    async with scripted(fall_silent, serve_quietly) as server, join(server) as room:
        await room.until(lambda: len(server.hellos) == 2 and room.connected)


async def test_a_heartbeat_is_answered_with_its_time():
    async def beat(peer):
        await peer.welcome()
        await peer.say(ms.Heartbeat(head=0, t=12.5))
        assert (await peer.hear(ms.HeartbeatAck)).t == 12.5
        await peer.tell(comment("answered"))
        await peer.stay()

    async with scripted(beat) as server, join(server) as room:
        await room.until(lambda: room.state.seq == 1)


async def test_joining_gives_up_after_its_time_and_says_why():
    with pytest.raises(consilium.Disconnected, match="not joined in 0.3 s: .*refused|Connect"):
        await consilium.connect("ws://127.0.0.1:9", room="ward-3", open_timeout_s=0.3)


async def test_leaving_while_acts_wait_ends_them():
    async with scripted(serve_quietly) as server:
        room = await join(server)
        acting = asyncio.create_task(room.comment("never answered"))
        await asyncio.sleep(0)
        await room.close()
        with pytest.raises(consilium.Disconnected):
            await acting
        with pytest.raises(consilium.Disconnected):
            await room.comment("too late")
