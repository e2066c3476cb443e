"""Messages say what they are, refuse what they must and leave out what is not said."""

from typing import get_args

import msgspec
import pytest

from protocol import messages as ms
from protocol.base import ClientMessage, ServerMessage
from protocol.events import UnknownEvent
from protocol.state import Person

CLIENT = get_args(ms.AnyClientMessage)
SERVER = get_args(ms.AnyServerMessage)
SESSION = "0123456789abcdef0123456789abcdef"


def decode(text, union=ms.AnyClientMessage):
    return msgspec.json.decode(text, type=union)


def test_every_client_message_refuses_unknown_fields():
    for cls in (*CLIENT, *get_args(ms.AnyOp)):
        assert cls.__struct_config__.forbid_unknown_fields, cls.__name__


def test_every_server_message_passes_unknown_fields_over():
    for cls in SERVER:
        assert not cls.__struct_config__.forbid_unknown_fields, cls.__name__


def test_the_unions_hold_every_message_class():
    def leaves(cls):
        children = cls.__subclasses__()
        return {leaf for child in children for leaf in leaves(child)} if children else {cls}

    ours = {
        cls
        for cls in leaves(ClientMessage) | leaves(ServerMessage)
        if cls.__module__[:9] == "protocol."
    }
    # `UnknownEvent` stands for what was read and is never sent.
    assert ours - {UnknownEvent} == set(CLIENT) | set(SERVER)


def test_no_two_messages_of_a_direction_have_the_same_type():
    for union in (CLIENT, SERVER, get_args(ms.AnyOp)):
        tags = [cls.__struct_config__.tag for cls in union]
        assert len(set(tags)) == len(tags)


def test_messages_cannot_be_changed():
    with pytest.raises(AttributeError):
        ms.Cancel(turn="t-1").turn = "t-2"  # type: ignore[misc]


def test_a_default_is_left_out_on_the_wire():
    assert msgspec.json.encode(ms.Presence()) == b'{"type":"presence"}'


def test_a_patch_tells_unsaid_from_empty():
    patch = decode('{"type":"op","op_id":"o","op":{"type":"annotation.patch","id":"a","label":""}}')
    assert isinstance(patch, ms.Op) and isinstance(patch.op, ms.PatchAnnotation)
    assert patch.op.label == ""
    assert patch.op.shape is msgspec.UNSET and patch.op.severity is msgspec.UNSET


def test_presence_is_lossy_and_a_departure_replaces_where_one_was():
    here = ms.PresenceState(person=Person(participant="p-1", name="Mei"))
    gone = ms.PresenceGone(participant="p-1")
    assert here.lane == gone.lane == "lossy"
    assert here.coalesce_key() == gone.coalesce_key() == "presence:p-1"


def test_only_lossy_messages_may_be_replaced():
    for cls in SERVER:
        replaces = cls.coalesce_key is not ServerMessage.coalesce_key
        assert replaces == (cls.lane == "lossy"), cls.__name__


def test_progress_of_two_assets_does_not_replace_each_other():
    one, other = (
        ms.AssetProgress(asset=asset, stage="ocr", done=1, total=2) for asset in ("as-1", "as-2")
    )
    assert one.coalesce_key() != other.coalesce_key()


@pytest.mark.parametrize(
    "session",
    ["short", "x" * 65, "with space 0123456789", "slash/0123456789ab", "0123456789abcdef\n"],
)
def test_a_session_is_long_and_plain(session):
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.json.encode({"type": "hello", "session": session, "client": "demo"}))


def test_a_hello_resumes_at_a_position():
    hello = ms.Hello(session=SESSION, client="demo", resume=ms.Position(epoch="e1", seq=41))
    assert decode(msgspec.json.encode(hello)) == hello
