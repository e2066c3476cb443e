"""A binary frame survives its way, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import BadMessage, ErrorCode
from protocol.media import HEADER_BYTES, MAX_PAYLOAD_BYTES, MediaFrame, MediaKind

frames = st.builds(
    MediaFrame,
    stream=st.integers(0, 2**32 - 1),
    sequence=st.integers(0, 2**32 - 1),
    payload=st.binary(max_size=300),
    kind=st.sampled_from(MediaKind),
    flags=st.integers(0, 2**16 - 1),
    pts_us=st.integers(-(2**63), 2**63 - 1),
)


@given(frames)
def test_a_frame_survives_its_way(frame):
    raw = frame.serialize()
    assert len(raw) == HEADER_BYTES + len(frame.payload)
    assert MediaFrame.parse(raw) == frame


@given(st.binary(max_size=100))
def test_any_bytes_are_a_frame_or_a_coded_error(raw):
    try:
        frame = MediaFrame.parse(raw)
    except BadMessage as refused:
        assert refused.code is ErrorCode.BAD_FRAME
    else:
        assert frame.serialize() == raw


@given(frames, st.data())
def test_a_frame_cut_anywhere_is_refused(frame, data):
    raw = frame.serialize()
    with pytest.raises(BadMessage):
        MediaFrame.parse(raw[: data.draw(st.integers(0, len(raw) - 1))])


@given(frames)
def test_a_frame_with_something_behind_it_is_refused(frame):
    with pytest.raises(BadMessage):
        MediaFrame.parse(frame.serialize() + b"\0")


def test_the_largest_payload_is_64_kib():
    largest = MediaFrame(1, 0, bytes(MAX_PAYLOAD_BYTES))
    assert MediaFrame.parse(largest.serialize()) == largest
    with pytest.raises(ValueError, match="over 64 KiB"):
        MediaFrame(1, 0, bytes(MAX_PAYLOAD_BYTES + 1)).serialize()
    header = largest.serialize()[: HEADER_BYTES - 4]
    length = (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "big")
    with pytest.raises(BadMessage, match="64 KiB") as refused:
        MediaFrame.parse(header + length + bytes(MAX_PAYLOAD_BYTES + 1))
    assert refused.value.ref == "1"


@pytest.mark.parametrize(
    "field", [{"stream": 2**32}, {"stream": -1}, {"sequence": 2**32}, {"flags": 65_536}]
)
def test_a_field_out_of_its_range_is_the_callers_mistake(field):
    fields = {"stream": 1, "sequence": 0, "payload": b""} | field
    with pytest.raises(ValueError, match="media header"):
        MediaFrame(**fields).serialize()
