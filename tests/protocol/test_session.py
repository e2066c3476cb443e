"""Both sides of a connection, without a socket and without a clock."""

import json

import pytest

from protocol.base import MAX_TEXT_BYTES
from protocol.codec import encode, number
from protocol.errors import CloseCode, ErrorCode, ProtocolError, StreamError, may_reconnect
from protocol.events import CommentAdded
from protocol.media import MediaFrame
from protocol.messages import (
    Ack,
    AddComment,
    Cancel,
    Goaway,
    Heartbeat,
    Hello,
    Limits,
    MediaAccess,
    Nack,
    Op,
    Position,
    Welcome,
)
from protocol.room import RoomState
from protocol.session import ClientSession, Resync, ServerSession
from protocol.shapes import Actor

WU = Actor(id="p-wu", name="Wu")
HELLO = Hello(session="s" * 20, client="test/1")


def welcome(**fields):
    return Welcome(
        participant="p-wu",
        name="Wu",
        role="member",
        room="r",
        epoch="e1",
        heartbeat_s=5,
        head=0,
        limits=Limits(max_asset_bytes=1, max_streams=1, initial_credit_bytes=1),
        media=MediaAccess(base="/", ticket="t", expires_at=0),
        **fields,
    )


def comment(seq, epoch="e1"):
    return number(CommentAdded(at=1, actor=WU, id=f"c{seq}", text="x"), seq, epoch)


@pytest.fixture
def server():
    session = ServerSession(now=0.0)
    assert session.receive_text(encode(HELLO), now=0.0) == [HELLO]
    return session


def codes(incoming):
    return [m.code if isinstance(m, ProtocolError) else type(m).__name__ for m in incoming]


class TestServer:
    def test_hello_comes_first(self):
        session = ServerSession(now=0.0)
        (error,) = session.receive_text(encode(Cancel(turn="t")), now=0.0)
        assert (error.code, error.close_code) == (ErrorCode.OUT_OF_TURN, CloseCode.BAD_MESSAGE)
        (error,) = ServerSession(now=0.0).receive_binary(b"x" * 30, now=0.0)
        assert error.fatal

    def test_hello_comes_once(self, server):
        (error,) = server.receive_text(encode(HELLO), now=0.0)
        assert error.fatal

    def test_a_bad_message_before_hello_is_told_and_out_of_turn(self):
        said = ServerSession(0.0).receive_text(b"{", now=0.0)
        assert codes(said) == [ErrorCode.BAD_JSON, ErrorCode.OUT_OF_TURN]

    def test_a_hello_that_cannot_be_read_is_told_why(self):
        """A name of 10 kB was answered: the first message was not `hello`."""
        hello = Hello(session="s" * 16, client="t", name="n" * 10_000)
        bad, end = ServerSession(0.0).receive_text(encode(hello), now=0.0)
        assert "name" in bad.message and bad.code is ErrorCode.BAD_MESSAGE
        assert end.code is ErrorCode.OUT_OF_TURN

    def test_L17_what_comes_in_the_same_frame_as_hello_is_heard(self):
        frame = b"[" + encode(HELLO) + b"," + encode(Cancel(turn="t")) + b"]"
        assert codes(ServerSession(0.0).receive_text(frame, now=0.0)) == ["Hello", "Cancel"]

    def test_a_text_frame_over_the_limit_is_too_big_and_the_session_goes_on(self, server):
        assert codes(server.receive_text(b" " * (MAX_TEXT_BYTES + 1), now=1.0)) == [
            ErrorCode.TOO_BIG
        ]
        assert codes(server.receive_text(encode(Cancel(turn="t")), now=1.0)) == ["Cancel"]

    def test_a_chunk_for_a_stream_that_is_not_open_is_told(self, server):
        (error,) = server.receive_binary(MediaFrame(9, 0, b"x").serialize(), now=0.0)
        assert (error.code, error.ref, error.fatal) == (ErrorCode.STREAM_UNKNOWN, "9", False)

    def test_chunks_within_the_credit_come_through_and_beyond_it_end_the_stream(self, server):
        server.open_stream(1, credit=10, max_streams=2)
        chunk = MediaFrame(1, 0, b"x" * 10)
        assert server.receive_binary(chunk.serialize(), now=0.0) == [chunk]
        beyond = MediaFrame(1, 1, b"x").serialize()
        assert codes(server.receive_binary(beyond, now=0.0)) == [ErrorCode.STREAM_OVERDRAWN]
        assert codes(server.receive_binary(beyond, now=0.0)) == [ErrorCode.STREAM_UNKNOWN]

    def test_granted_credit_can_be_spent(self, server):
        server.open_stream(1, credit=0, max_streams=2)
        server.grant(1, 5)
        server.grant(77, 5)
        assert codes(server.receive_binary(MediaFrame(1, 0, b"xxxxx").serialize(), 0.0)) == [
            "MediaFrame"
        ]

    def test_M4_of_a_live_stream_a_repeat_changes_nothing_and_a_gap_is_told(self, server):
        server.open_stream(1, credit=10, max_streams=2, is_live=True)
        first, later = MediaFrame(1, 0, b"x"), MediaFrame(1, 4, b"y", pts_us=80_000)
        assert server.receive_binary(first.serialize(), now=0.0) == [first]
        assert server.receive_binary(first.serialize(), now=0.0) == []
        gap, chunk = server.receive_binary(later.serialize(), now=0.0)
        assert (gap.code, gap.ref, gap.fatal) == (ErrorCode.STREAM_GAP, "1", False)
        assert "3 chunks before 0.08 s" in gap.message and chunk == later
        assert server.receive_binary(MediaFrame(1, 2, b"z").serialize(), now=0.0) == []

    def test_M4_a_repeated_chunk_never_enters_the_file(self, server):
        server.open_stream(1, credit=10, max_streams=2)
        chunk = MediaFrame(1, 0, b"x").serialize()
        server.receive_binary(chunk, now=0.0)
        assert codes(server.receive_binary(chunk, now=0.0)) == [ErrorCode.STREAM_GAP]

    def test_streams_are_bounded_and_named_once(self, server):
        server.open_stream(1, credit=1, max_streams=1)
        for stream, code in ((1, ErrorCode.STREAM_EXISTS), (2, ErrorCode.STREAM_LIMIT)):
            with pytest.raises(StreamError) as refused:
                server.open_stream(stream, credit=1, max_streams=1)
            assert refused.value.code == code
        server.end_stream(1)
        server.open_stream(2, credit=1, max_streams=1)

    def test_silence_is_measured_from_the_last_frame(self, server):
        server.receive_text(b"{", now=3.0)
        assert server.silent_s(now=10.0) == 7.0


class TestClient:
    def test_the_first_hello_asks_for_everything_and_later_ones_for_the_rest(self):
        client = ClientSession(HELLO)
        assert client.hello().resume is None
        client.receive(encode(welcome()))
        client.receive(encode(comment(1)))
        assert client.hello().resume == Position(epoch="e1", seq=1)

    def test_R22_an_event_that_came_twice_is_handed_on_once(self):
        client = ClientSession(HELLO)
        client.receive(encode(welcome()))
        assert client.receive(encode(comment(1))) == [comment(1)]
        assert client.receive(encode(comment(1))) == []

    def test_R30_a_gap_is_never_silent(self):
        client = ClientSession(HELLO)
        client.receive(encode(welcome()))
        (message,) = client.receive(encode(comment(2)))
        assert isinstance(message, Resync)
        assert client.hello().resume == Position(epoch="e1", seq=0)

    def test_a_loss_that_a_heartbeat_announced_shows_at_the_next_one(self):
        client = ClientSession(HELLO)
        client.receive(encode(welcome()))
        beat = encode(Heartbeat(head=1, t=0.0))
        assert not any(isinstance(m, Resync) for m in client.receive(beat))
        assert any(isinstance(m, Resync) for m in client.receive(beat))

    def test_a_heartbeat_that_overtook_its_events_is_no_loss(self):
        client = ClientSession(HELLO)
        client.receive(encode(welcome()))
        client.receive(encode(Heartbeat(head=1, t=0.0)))
        client.receive(encode(comment(1)))
        assert not any(
            isinstance(m, Resync) for m in client.receive(encode(Heartbeat(head=2, t=1.0)))
        )

    def test_a_slow_line_that_still_moves_is_no_loss(self):
        client = ClientSession(HELLO)
        client.receive(encode(welcome()))
        client.receive(encode(Heartbeat(head=9, t=0.0)))
        client.receive(encode(comment(1)))
        beat = encode(Heartbeat(head=9, t=5.0))
        assert not any(isinstance(m, Resync) for m in client.receive(beat))
        assert any(isinstance(m, Resync) for m in client.receive(beat))

    @pytest.mark.parametrize(
        "newer",
        [
            {"type": "from.the.future", "x": 1},
            {"type": "comment.add", "id": ["of", "a", "newer", "shape"]},
        ],
    )
    def test_an_event_that_an_old_client_cannot_read_is_no_gap(self, newer):
        client = ClientSession(HELLO)
        client.receive(encode(welcome()))
        client.receive(json.dumps({**newer, "seq": 1, "epoch": "e1", "at": 1}))
        assert client.receive(encode(comment(2))) == [comment(2)]
        assert client.state.seq == 2

    def test_R40_a_snapshot_replaces_the_copy_and_unanswered_ops_are_kept(self):
        client = ClientSession(HELLO)
        op = Op(op_id="o1", op=AddComment(id="c", text="x"))
        client.receive(encode(welcome()))
        client.receive(encode(comment(1)))
        client.remember(op)
        client.receive(encode(welcome(snapshot=RoomState("e2", 9).snapshot())))
        assert (client.state.epoch, client.state.seq) == ("e2", 9)
        assert client.pending() == [op]

    @pytest.mark.parametrize(
        "answer",
        [
            Ack(op_id="o1", seq=4),
            Nack(op_id="o1", code=ErrorCode.ASSET_UNKNOWN, message="no"),
        ],
    )
    def test_an_answered_op_is_not_sent_again(self, answer):
        client = ClientSession(HELLO)
        client.remember(Op(op_id="o1", op=AddComment(id="c", text="x")))
        client.receive(encode(answer))
        assert client.pending() == []

    def test_the_outbox_is_bounded(self):
        client = ClientSession(HELLO, max_pending=1)
        client.remember(Op(op_id="o1", op=AddComment(id="c", text="x")))
        with pytest.raises(OverflowError):
            client.remember(Op(op_id="o2", op=AddComment(id="d", text="x")))

    def test_R47_the_token_goes_with_every_hello(self):
        client = ClientSession(Hello(session="s" * 20, client="t", token="one"))
        client.receive(encode(welcome()))
        assert client.hello().token == "one"
        assert client.hello(token="two").token == "two"

    def test_R53_the_server_says_when_to_come_back(self):
        client = ClientSession(HELLO)
        client.receive(encode(Goaway(retry_after=2.5)))
        assert client.retry_after_s == 2.5

    def test_a_close_code_of_another_kind_says_whether_to_come_back(self):
        client = ClientSession(HELLO)
        assert client.closed(1006) and client.closed(4453) and client.closed(4499)
        assert not client.closed(4401) and not client.closed(4449)
        assert not may_reconnect(CloseCode.NORMAL)


def test_a_server_message_that_is_newer_than_the_client_is_passed_over():
    client = ClientSession(HELLO)
    assert client.receive(json.dumps({"type": "brand.new"})) == []
