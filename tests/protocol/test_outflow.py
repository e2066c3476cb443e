"""The sender of an upload never overdraws and always knows what comes next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ErrorCode
from protocol.media import MAX_PAYLOAD_BYTES, MediaKind
from protocol.messages import Error, StreamClosed, StreamCredit, StreamOpened
from protocol.outflow import Outflow


def opened(flow, offset=0, credit=100):
    flow.receive(StreamOpened(stream=flow.stream, asset="as-1", offset=offset, credit=credit))


def test_nothing_may_be_sent_before_the_stream_is_open():
    flow = Outflow(10)
    flow.ask(1)
    assert flow.sendable() == 0 and not flow.all_sent()
    with pytest.raises(ValueError, match="more than may be sent"):
        flow.frame(b"x")


def test_a_frame_carries_at_most_64_kib():
    flow = Outflow(2**20)
    flow.ask(1)
    opened(flow, credit=2**20)
    assert flow.sendable() == MAX_PAYLOAD_BYTES


def test_an_empty_file_has_only_its_end_to_say():
    flow = Outflow(0)
    flow.ask(1)
    opened(flow)
    assert flow.all_sent() and flow.has_news(0)
    assert flow.close().stream == 1
    assert not flow.has_news(0)


def test_going_on_names_the_asset_and_starts_the_count_afresh():
    flow = Outflow(100, "0" * 64, name="x", kind="camera")
    assert flow.ask(1).asset is None
    opened(flow, credit=50)
    assert flow.frame(b"a" * 50).sequence == 0
    again = flow.ask(7)
    assert (again.stream, again.asset, again.size) == (7, "as-1", 100)
    assert flow.sendable() == 0, "credit of a lost socket counts no more"
    opened(flow, offset=30, credit=100)
    assert (flow.offset, flow.received, flow.sendable()) == (30, 30, 70)
    frame = flow.frame(b"b" * 70)
    assert (frame.sequence, frame.stream, frame.kind) == (0, 7, MediaKind.CAMERA)


def test_a_stream_that_was_closed_is_over():
    flow = Outflow(10)
    flow.ask(1)
    opened(flow)
    flow.receive(StreamClosed(stream=1, code=ErrorCode.STREAM_GAP, message="gap"))
    assert flow.sendable() == 0 and flow.has_news(0)
    assert flow.closed.code is ErrorCode.STREAM_GAP


def test_an_error_before_it_was_open_is_its_end():
    flow = Outflow(10)
    flow.ask(3)
    flow.receive(Error(code=ErrorCode.STREAM_LIMIT, message="too many", ref="3"))
    assert (flow.closed.stream, flow.closed.code) == (3, ErrorCode.STREAM_LIMIT)


def test_a_stored_upload_is_received_whole():
    flow = Outflow(10)
    flow.ask(1)
    flow.receive(StreamClosed(stream=1, asset="as-1"))
    assert flow.received == 10


@given(st.integers(0, 5_000), st.lists(st.integers(0, 900), max_size=30))
def test_whatever_is_granted_is_never_overdrawn(size, grants):
    flow = Outflow(size)
    flow.ask(1)
    opened(flow, credit=100)
    granted, sent = 100, 0
    for credit in [*grants, size]:
        while (take := flow.sendable()) > 0:
            sent += len(flow.frame(bytes(take)).payload)
        assert sent == min(granted, size)
        flow.receive(StreamCredit(stream=1, credit=credit, received=sent))
        granted += credit
    while (take := flow.sendable()) > 0:
        sent += len(flow.frame(bytes(take)).payload)
    assert sent == size and flow.all_sent()
