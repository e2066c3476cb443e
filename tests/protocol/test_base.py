"""The bases decide how strict a direction is."""

import msgspec
import pytest

from protocol.base import MAX_FRAME_BYTES, MAX_TEXT_BYTES, ClientMessage, ServerMessage
from protocol.media import HEADER_BYTES, MAX_PAYLOAD_BYTES


class Said(ClientMessage, tag="said", frozen=True, kw_only=True):
    word: str


class Heard(ServerMessage, tag="heard", frozen=True, kw_only=True):
    word: str


def test_a_typo_of_a_client_is_told():
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"type":"said","word":"a","wrod":"b"}', type=Said)


def test_a_field_of_a_newer_server_is_passed_over():
    heard = msgspec.json.decode(b'{"type":"heard","word":"a","tone":"b"}', type=Heard)
    assert heard == Heard(word="a")


def test_a_server_message_replaces_nothing_unless_it_says_so():
    assert Heard(word="a").coalesce_key() is None
    assert Heard.lane == "control"


def test_every_message_fits_the_transports_frame():
    assert MAX_TEXT_BYTES < MAX_FRAME_BYTES
    assert HEADER_BYTES + MAX_PAYLOAD_BYTES < MAX_FRAME_BYTES
