"""The raw log: whole, in order, the bytes as they were."""

import pytest

from protocol.events import CommentAdded
from protocol.shapes import Actor
from server.export import ndjson
from server.log import Draft, Gap, Head, LogUnavailable

MEI = Actor(id="p", name="Mei")


async def fill(room_log, count, text="x"):
    drafts = [
        Draft(CommentAdded(at=n, actor=MEI, op_id=f"o{n}", id=f"c{n}", text=text), "p")
        for n in range(count)
    ]
    return await room_log.append("ward-7", drafts)


async def test_every_line_is_the_frame_that_everybody_got(room_log):
    appended = await fill(room_log, 2_500, "two\nlines")
    pages = [page async for page in ndjson.pages(room_log, "ward-7")]
    assert len(pages) == 3
    assert b"".join(pages).splitlines() == [each.frame for each in appended]


async def test_what_happens_meanwhile_is_left_out(room_log):
    await fill(room_log, 1_500)
    pages = ndjson.pages(room_log, "ward-7")
    first = await anext(pages)
    more = Draft(CommentAdded(at=1, actor=MEI, op_id="late", id="late", text="late"), "p")
    await room_log.append("ward-7", [more])
    rest = [page async for page in pages]
    assert (first + b"".join(rest)).count(b"\n") == 1_500


async def test_a_room_in_which_nothing_happened_has_no_lines(room_log):
    assert [page async for page in ndjson.pages(room_log, "empty")] == []


async def test_a_log_that_is_not_whole_is_refused(room_log):
    class Trimmed:
        async def head(self, room):
            return Head("e", 9)

        async def page(self, room, epoch, seq, **limits):
            return Gap(Head("e", 9))

    with pytest.raises(LogUnavailable):
        await anext(ndjson.pages(Trimmed(), "ward-7"))
