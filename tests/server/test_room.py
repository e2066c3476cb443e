"""One room: order, answers, a log that fails."""

from __future__ import annotations

import asyncio

import pytest

from protocol import codec
from protocol.errors import ErrorCode, OpRefused
from protocol.events import CommentAdded
from protocol.messages import AddComment
from protocol.room import RoomState, draft_event
from protocol.shapes import Actor
from server.log import Appended, Draft, LogUnavailable
from server.proposals import Proposal
from server.room import MAX_WAITING, Room

MEI = Actor(id="mei", name="Mei")


class Listener:
    """A member that keeps what it is given."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []

    def deliver(self, seq: int, frame: bytes) -> None:
        self.frames.append((seq, frame))

    def show(self, key: str, frame: bytes) -> None:
        self.frames.append((0, frame))


class FailingLog:
    """A log over a real one that is unavailable while it is told to be."""

    def __init__(self, log) -> None:
        self._log = log
        self.fails = False

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, room, drafts, after=None):
        if self.fails:
            raise LogUnavailable("the disk is full")
        return await self._log.append(room, drafts, after)


def comment(room: Room, op_id: str, text: str = "x", comment_id: str = "") -> asyncio.Future:
    answered = asyncio.get_running_loop().create_future()
    op = AddComment(id=comment_id or op_id, text=text)

    def is_same(first) -> bool:
        return isinstance(first, CommentAdded) and first.text == text

    room.propose(
        Proposal(
            lambda state: draft_event(state, op, MEI, 1, op_id),
            answered.set_result,
            "mei",
            op_id,
            is_same,
        )
    )
    return answered


async def test_acts_are_numbered_in_the_order_they_came_and_everybody_hears_them_so(room):
    listener = Listener()
    room.members[1] = listener
    answers = await asyncio.gather(*(comment(room, f"o{n}") for n in range(100)))
    assert [answer.event.seq for answer in answers] == list(range(1, 101))
    assert [seq for seq, _ in listener.frames] == list(range(1, 101))
    assert listener.frames[4][1] is answers[4].frame or listener.frames[4][1] == answers[4].frame


async def test_an_act_is_checked_against_the_ones_before_it_in_the_same_batch(room):
    first, second = comment(room, "o1", comment_id="c"), comment(room, "o2", comment_id="c")
    assert isinstance(await first, Appended)
    assert (await second).code == ErrorCode.OP_CONFLICT


async def test_an_act_that_is_sent_again_is_acknowledged_under_its_first_number(room):
    answers = await asyncio.gather(comment(room, "o1"), comment(room, "o1"))
    assert [answer.event.seq for answer in answers] == [1, 1]
    again = await comment(room, "o1")
    assert (again.event.seq, again.duplicate) == (1, True)


async def test_R32_an_op_id_that_comes_back_with_another_content_is_refused(room):
    await comment(room, "o1", "one")
    refused = await comment(room, "o1", "two", comment_id="c2")
    assert refused.code == ErrorCode.OP_CONFLICT


async def failing_room(room_log, background):
    log = FailingLog(room_log)
    room = Room("r", log, background, 1_000)
    background.spawn(room.run(), "room")
    return log, room


async def test_a_failed_append_answers_everybody_and_changes_nothing(room_log, background):
    log, room = await failing_room(room_log, background)
    listener = Listener()
    room.members[1] = listener
    await comment(room, "o1")
    log.fails = True
    refused = await asyncio.gather(comment(room, "o2"), comment(room, "o3"))
    assert {answer.code for answer in refused} == {ErrorCode.UNAVAILABLE}
    assert await room.between(lambda state: (state.seq, list(state.comments))) == (1, ["o1"])
    log.fails = False
    assert (await comment(room, "o2")).event.seq == 2
    assert [seq for seq, _ in listener.frames] == [1, 2]


async def test_what_was_said_after_a_failed_batch_fails_with_it(room_log, background):
    """Else an op that builds on a lost one would be taken without it."""
    log, room = await failing_room(room_log, background)
    await comment(room, "o0")
    log.fails = True
    answers = [comment(room, f"o{number}") for number in range(1, 600)]
    await answers[0]
    log.fails = False
    assert {(await each).code for each in answers} == {ErrorCode.UNAVAILABLE}


async def test_the_servers_own_events_wait_out_a_log_that_fails(room_log, background):
    log, room = await failing_room(room_log, background)
    log.fails = True
    events = [CommentAdded(at=1, actor=MEI, id=f"c{n}", text="x") for n in range(3)]
    recording = asyncio.create_task(room.record(*events))
    refused = await comment(room, "o1")
    assert refused.code == ErrorCode.UNAVAILABLE and not recording.done()
    log.fails = False
    await recording
    assert list(await room.between(lambda state: dict(state.comments))) == ["c0", "c1", "c2"]


async def test_R29_a_fault_of_ours_in_one_act_does_not_end_the_room(room):
    answered = asyncio.get_running_loop().create_future()

    def broken(state: RoomState):
        raise KeyError("a fault of ours")

    room.propose(Proposal(broken, answered.set_result, "mei", "bad"))
    assert (await answered).code == ErrorCode.INTERNAL
    assert (await comment(room, "o1")).event.seq == 1


async def test_too_much_that_waits_is_refused_and_not_kept(room):
    answers = [comment(room, f"o{n}") for n in range(MAX_WAITING + 5)]
    refused = [each for each in answers[-5:] if each.done()]
    assert [each.result().code for each in refused] == [ErrorCode.OVERLOADED] * 5
    await asyncio.gather(*answers)


async def test_a_room_is_loaded_from_its_snapshot_and_the_tail(room_log, background):
    for_load: list[str] = []
    for run in range(3):
        room = Room("r", room_log, background, snapshot_events=7)
        worker = background.spawn(room.run(), "room")
        for number in range(10):
            await comment(room, f"o{run}-{number}")
        await asyncio.sleep(0.05)
        for_load.append(await room.between(lambda state: state.hash()))
        worker.cancel()
    again = Room("r", room_log, background, 1_000)
    background.spawn(again.run(), "room")
    assert await again.between(lambda state: state.hash()) == for_load[-1]
    assert (await room_log.snapshot("r")).seq > 0


async def test_until_returns_when_the_state_is_so(room):
    waiting = asyncio.create_task(room.until(lambda state: "o3" in state.comments))
    for number in range(5):
        assert not waiting.done() or number > 3
        await comment(room, f"o{number}")
    await asyncio.wait_for(waiting, 1)


async def test_a_room_that_ends_answers_what_waits(room_log, background):
    room = Room("r", room_log, background, 1_000)
    worker = background.spawn(room.run(), "room")
    await room.between(lambda state: None)
    worker.cancel()
    waiting = asyncio.create_task(room.between(lambda state: None))
    with pytest.raises(OpRefused):
        await asyncio.wait_for(waiting, 1)


async def test_the_frame_on_the_wire_is_the_frame_in_the_log(room, room_log):
    listener = Listener()
    room.members[1] = listener
    answer = await comment(room, "o1")
    assert codec.decode_event(listener.frames[0][1]) == answer.event
    page = await room_log.page("ward-7", answer.event.epoch, 0, max_events=9, max_bytes=9**9)
    assert page.events[0].frame == listener.frames[0][1]


async def test_snapshots_of_a_big_room_are_rarer_so_that_they_cost_no_more_than_its_events(
    room_log, background
):
    stored: list[int] = []

    class Counting(FailingLog):
        async def store_snapshot(self, room, snapshot):
            stored.append(snapshot.seq)
            return await room_log.store_snapshot(room, snapshot)

    room = Room("r", Counting(room_log), background, snapshot_events=5)
    background.spawn(room.run(), "room")
    for number in range(160):
        await comment(room, f"o{number}", "x" * 1_000)
    await asyncio.sleep(0.05)
    assert 5 <= stored[0] <= 8 and 3 <= len(stored) <= 8


async def test_R29_a_fault_of_one_who_looks_is_theirs_and_the_room_goes_on(room):
    """A fault in one join ended the room's worker: nobody could enter until a restart."""

    def break_down(state: RoomState) -> None:
        raise ValueError("a fault of ours")

    with pytest.raises(ValueError, match="a fault of ours"):
        await room.between(break_down)
    assert isinstance(await comment(room, "a"), Appended)


async def test_R29_a_damaged_log_is_told_to_each_until_it_is_mended(room, room_log, database):
    await room_log.append("ward-7", [Draft(CommentAdded(at=1, actor=MEI, id="c", text="x"))])

    def damage(frame: str):
        query = "UPDATE events SET frame = json_set(frame, '$.type', ?)"
        return lambda db: db.execute(query, (frame,)).close()

    await database.write(damage("no.such.event"))
    for op_id in ("a", "b"):
        assert (await comment(room, op_id)).code is ErrorCode.INTERNAL
    await database.write(damage("comment.add"))
    assert isinstance(await comment(room, "a"), Appended)


async def test_a_room_that_became_too_large_takes_no_more_of_people_also_after_a_restart(
    room_log, background
):
    """10,000 comments of 16,000 characters were 160 MB for each who joined."""

    async def load() -> Room:
        hosted = Room("ward-7", room_log, background, 1_000, max_bytes=200_000)
        background.spawn(hosted.run(), "room")
        return hosted

    room = await load()
    for number in range(100):
        answer = await comment(room, f"o{number}", "x" * 10_000)
        if not isinstance(answer, Appended):
            break
        await room.between(lambda state: None)
    assert answer.code is ErrorCode.ROOM_FULL and 20 <= number < 50
    await room.record(CommentAdded(at=1, actor=MEI, id="s", text="the server's own"))
    again = await load()
    assert (await comment(again, "late")).code is ErrorCode.ROOM_FULL
