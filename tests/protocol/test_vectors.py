"""The golden vectors, which the web client reads too, hold for the Python side."""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from protocol import codec, messages
from protocol.errors import BadMessage
from protocol.media import MediaFrame, MediaKind
from protocol.room import EventGap, RoomState, apply
from protocol.state import Snapshot

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


def read(name: str) -> Any:
    return json.loads((VECTORS / name).read_text(encoding="utf-8"))


def named(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


MEDIA = read("media_headers.json")
CLIENT = read("client_messages.json")
SERVER = read("server_messages.json")
HISTORY = read("room_history.json")


@named(MEDIA["valid"])
def test_a_binary_frame_is_its_fields_and_back(case):
    fields = dict(case["fields"])
    payload, kind = bytes.fromhex(fields.pop("payload_hex")), MediaKind(fields.pop("kind"))
    frame = MediaFrame(payload=payload, kind=kind, **fields)
    assert MediaFrame.parse(bytes.fromhex(case["hex"])) == frame
    assert frame.serialize().hex() == case["hex"]


@named(MEDIA["invalid"])
def test_a_wrong_binary_frame_has_its_code(case):
    with pytest.raises(BadMessage) as refused:
        MediaFrame.parse(bytes.fromhex(case["hex"]))
    assert refused.value.code == case["code"]


@named(CLIENT["valid"])
def test_a_client_frame_is_its_messages_and_back(case):
    check_decoded(codec.decode_client(case["frame"]), case["messages"])
    check_decoded(codec.decode_client(case["frame"].encode()), case["messages"])


@named(SERVER["valid"])
def test_a_server_frame_is_its_messages_and_back(case):
    check_decoded(codec.decode_server(case["frame"]), case["messages"])
    check_decoded(codec.decode_server(case["frame"].encode()), case["messages"])


def check_decoded(decoded, expected):
    assert [type(message).__name__ for message in decoded] == [one["class"] for one in expected]
    again = [json.loads(codec.encode(message)) for message in decoded]
    assert again == [one["message"] for one in expected]


@named(CLIENT["invalid"])
def test_a_wrong_client_frame_has_its_code(case):
    (refused,) = codec.decode_client(case["frame"])
    assert isinstance(refused, BadMessage)
    assert refused.code == case["code"]


@named(SERVER["invalid"])
def test_a_wrong_server_frame_has_its_code(case):
    with pytest.raises(BadMessage) as refused:
        codec.decode_server(case["frame"])
    assert refused.value.code == case["code"]


@named(HISTORY)
def test_a_history_gives_its_state(case):
    start = case["start"]
    state = (
        RoomState() if start is None else RoomState.from_snapshot(msgspec.convert(start, Snapshot))
    )
    gap_at = None
    for place, event in enumerate(case["events"]):
        try:
            apply(state, codec.decode_event(json.dumps(event).encode()))
        except EventGap:
            gap_at = place
            break
    assert gap_at == case["gap_at"]
    assert json.loads(msgspec.json.encode(state.snapshot())) == case["snapshot"]
    assert state.hash() == case["hash"]


@pytest.mark.parametrize(
    "vectors, union", [(CLIENT, messages.AnyClientMessage), (SERVER, messages.AnyServerMessage)]
)
def test_every_message_class_has_a_valid_vector(vectors, union):
    shown = {one["class"] for case in vectors["valid"] for one in case["messages"]}
    assert shown == {member.__name__ for member in get_args(union)}
