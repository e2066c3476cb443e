"""Yes and no on one line."""

from __future__ import annotations

from protocol.errors import ErrorCode, OpRefused
from protocol.events import CommentAdded
from protocol.shapes import Actor
from server.house import RETRY_S, Replies
from server.log import Appended


class Line:
    def __init__(self) -> None:
        self.said: list = []

    def send(self, message) -> None:
        self.said.append(message)


def test_an_act_is_answered_by_its_number_or_by_why_it_has_none():
    line = Line()
    replies = Replies(line)
    event = CommentAdded(seq=7, at=1, actor=Actor(id="m", name="M"), id="c", text="x")
    replies.act("o1", Appended(event, b""))
    replies.act("o2", OpRefused("no", code=ErrorCode.ASSET_UNKNOWN))
    replies.act("o3", OpRefused("later", code=ErrorCode.UNAVAILABLE))
    assert (line.said[0].op_id, line.said[0].seq) == ("o1", 7)
    assert (line.said[1].code, line.said[1].retry_after) == (ErrorCode.ASSET_UNKNOWN, None)
    assert line.said[2].retry_after == RETRY_S
