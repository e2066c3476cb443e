"""What a peer sends becomes a message or a coded error, and comes back as it went."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.base import MAX_DEPTH
from protocol.codec import (
    MAX_BATCH,
    decode_client,
    decode_event,
    decode_server,
    encode,
    join,
    number,
)
from protocol.errors import BadMessage, ErrorCode, ProtocolError
from protocol.events import TurnDelta
from protocol.messages import Ask, Cancel, Heartbeat
from protocol.shapes import Actor

MODEL = Actor(id="model", name="Model", kind="model")


def codes(frame: bytes | str) -> list[ErrorCode | str]:
    return [
        message.code if isinstance(message, ProtocolError) else type(message).__name__
        for message in decode_client(frame)
    ]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", ErrorCode.BAD_JSON),
        (b"{", ErrorCode.BAD_JSON),
        (b"\xff\xfe", ErrorCode.BAD_JSON),
        (b"5", ErrorCode.BAD_MESSAGE),
        (b'{"turn":"t"}', ErrorCode.BAD_MESSAGE),
        (b'{"type":7}', ErrorCode.BAD_MESSAGE),
        (b'{"type":"no.such"}', ErrorCode.UNKNOWN_TYPE),
        (b'{"type":"turn.delta","at":1}', ErrorCode.UNKNOWN_TYPE),
        (b'{"type":"ask","turn":"t"}', ErrorCode.BAD_MESSAGE),
        (b'{"type":"ask","turn":"t","text":"x","typo":1}', ErrorCode.BAD_MESSAGE),
        (b'{"type":"cancel","turn":"../../etc"}', ErrorCode.BAD_MESSAGE),
        (b'{"type":"ask","turn":"t","text":"\\ud83d"}', ErrorCode.NOT_STORABLE),
        (b'{"type":"ask","turn":"t","text":"a\\u0000b"}', ErrorCode.NOT_STORABLE),
        (b'{"type":"heartbeat.ack","t":18446744073709551616}', ErrorCode.NOT_STORABLE),
        (b'{"type":"heartbeat.ack","t":NaN}', ErrorCode.NOT_STORABLE),
        (b"[" * 10_000, ErrorCode.TOO_DEEP),
        (b'{"type":"ask","x":' + b"[" * 100 + b"]" * 100 + b"}", ErrorCode.TOO_DEEP),
        (b'{"type":"x","a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", ErrorCode.TOO_DEEP),
    ],
)
def test_each_bad_frame_has_its_own_code(frame, code):
    assert codes(frame) == [code]


def test_a_lone_surrogate_in_a_text_frame_is_an_answer_not_a_crash():
    assert codes('{"type":"ask","turn":"t","text":"\ud83d"}') != ["Ask"]


def test_one_bad_message_of_a_batch_spoils_only_itself():
    frame = b'[{"type":"cancel","turn":"a"},{"type":"no"},{"type":"cancel","turn":"b"}]'
    assert codes(frame) == ["Cancel", ErrorCode.UNKNOWN_TYPE, "Cancel"]


def test_an_error_says_which_op_it_is_about():
    (error,) = decode_client(b'{"type":"op","op_id":"o7","op":{"type":"fly"}}')
    assert isinstance(error, BadMessage)
    assert error.ref == "o7"


def test_a_batch_has_a_limit():
    frame = join([encode(Cancel(turn="t"))] * (MAX_BATCH + 1))
    assert codes(frame) == [ErrorCode.BAD_MESSAGE]


def test_nesting_up_to_the_limit_is_told_by_the_schema_not_by_the_depth():
    inner = b"[" * (MAX_DEPTH - 2) + b"]" * (MAX_DEPTH - 2)
    assert codes(b'{"type":"ask","x":' + inner + b"}") == [ErrorCode.BAD_MESSAGE]


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_input_raises(frame):
    for message in decode_client(frame):
        assert message is not None


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=20))
def test_no_json_raises(value):
    import json

    decode_client(json.dumps({"type": "ask", "turn": value, "text": value}))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=50), st.integers(0, 99))
def test_an_event_comes_back_as_it_was_written(text, offset):
    event = TurnDelta(at=1, actor=MODEL, turn="t", offset=offset, text=text)
    numbered = number(event, 7, "e1")
    assert decode_event(encode(numbered)) == numbered
    assert decode_server(encode(numbered)) == [numbered]


def test_a_frame_that_is_no_event_is_refused():
    with pytest.raises(BadMessage):
        decode_event(encode(Ask(turn="t", text="x")))


def test_an_old_client_passes_over_what_it_does_not_know():
    frame = b'[{"type":"from.the.future","x":1},{"type":"heartbeat","head":3,"t":1.0,"new":true}]'
    assert decode_server(frame) == [Heartbeat(head=3, t=1.0)]


def test_one_frame_is_not_wrapped_in_an_array():
    assert join([b"{}"]) == b"{}"
    assert join([b"{}", b"{}"]) == b"[{},{}]"
