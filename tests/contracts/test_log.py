"""The contract of a log, run for every implementation."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.events import CommentAdded
from protocol.room import RoomState, apply
from protocol.shapes import Actor
from server.database import Database
from server.log import Draft, Gap, Head, History, LogUnavailable, Overtaken
from server.log_redis import RedisLog
from server.log_sqlite import SqliteLog
from server.redis_link import RedisLink

ROOT = Path(__file__).resolve().parents[2]
MEI = Actor(id="mei", name="Mei")


def draft(op_id: str, text: str = "x", participant: str = "mei") -> Draft:
    event = CommentAdded(at=1, actor=MEI, op_id=op_id, id=op_id or "none", text=text)
    return Draft(event, participant)


@pytest.fixture(params=["sqlite", "redis"])
async def again(request, tmp_path):
    """Open the log; again gives it as another process would have it."""
    opened = []

    def open_log():
        if request.param == "sqlite":
            made = SqliteLog(Database(tmp_path / "log.sqlite3"))
            opened.append(made)
            return made
        link = RedisLink(request.getfixturevalue("redis").url)
        opened.append(link)
        return RedisLog(link)

    yield open_log
    for each in opened:
        await each.close()


@pytest.fixture
def log(again):
    return again()


async def test_the_numbers_of_a_room_start_at_one_and_have_no_gaps(log):
    first = await log.append("r", [draft("a"), draft("b")])
    second = await log.append("r", [draft("c")])
    other = await log.append("s", [draft("a")])
    assert [each.event.seq for each in first + second] == [1, 2, 3]
    assert other[0].event.seq == 1
    assert other[0].event.epoch != first[0].event.epoch


async def test_an_act_that_comes_again_gets_its_first_number(log):
    (first,) = await log.append("r", [draft("a", "one")])
    again = await log.append("r", [draft("a", "two"), draft("b")])
    assert again[0].duplicate and again[0].event == first.event
    assert [each.event.seq for each in again] == [1, 2]


async def test_an_act_twice_in_one_append_is_numbered_once(log):
    appended = await log.append("r", [draft("a"), draft("a")])
    assert [each.event.seq for each in appended] == [1, 1]
    assert [each.duplicate for each in appended] == [False, True]


async def test_R32_the_same_op_id_of_another_participant_is_another_act(log):
    appended = await log.append("r", [draft("a"), draft("a", participant="wu")])
    assert [each.event.seq for each in appended] == [1, 2]


async def test_acts_without_a_name_are_never_the_same(log):
    appended = await log.append("r", [draft("", participant=""), draft("", participant="")])
    assert [each.event.seq for each in appended] == [1, 2]


async def test_the_frame_holds_the_number(log):
    (appended,) = await log.append("r", [draft("a")])
    said = json.loads(appended.frame)
    assert (said["seq"], said["epoch"]) == (1, appended.event.epoch)


async def test_since_gives_everything_or_a_gap(log):
    await log.append("r", [draft(str(n)) for n in range(10)])
    head = await log.head("r")
    history = await log.since("r", head.epoch, 4, 6)
    assert isinstance(history, History)
    assert [each.event.seq for each in history.events] == [5, 6, 7, 8, 9, 10]
    assert history.head == head
    assert await log.since("r", head.epoch, 4, 5) == Gap(head)
    assert await log.since("r", "another", 4, 6) == Gap(head)
    assert await log.since("r", head.epoch, 11, 6) == Gap(head)


async def test_a_page_is_the_beginning_of_what_follows(log):
    await log.append("r", [draft(str(n), "x" * 100) for n in range(10)])
    head = await log.head("r")
    by_count = await log.page("r", head.epoch, 2, max_events=3, max_bytes=10**6)
    assert [each.event.seq for each in by_count.events] == [3, 4, 5]
    by_size = await log.page("r", head.epoch, 2, max_events=100, max_bytes=1)
    assert [each.event.seq for each in by_size.events] == [3]


async def test_R36_the_epoch_and_the_head_outlive_the_log(log, again):
    await log.append("r", [draft("a")])
    head = await log.head("r")
    await log.close()
    assert await again().head("r") == head


async def test_an_append_after_another_end_than_the_known_one_changes_nothing(log, again):
    await log.append("r", [draft("a")])
    head = await log.head("r")
    (second,) = await again().append("r", [draft("b")], head)
    assert second.event.seq == 2
    for wrong in (head, Head(head.epoch, 3), Head("another", 2)):
        with pytest.raises(Overtaken):
            await log.append("r", [draft("c")], wrong)
    assert (await log.head("r")).seq == 2
    (again_b,) = await log.append("r", [draft("b")], Head(head.epoch, 2))
    assert again_b.duplicate and again_b.event == second.event


async def test_of_two_who_append_after_the_same_event_one_is_overtaken(log, again):
    head, other = await log.head("r"), again()
    both = (log.append("r", [draft("a")], head), other.append("r", [draft("b")], head))
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(isinstance(each, Overtaken) for each in outcomes) == [False, True]
    assert (await log.head("r")).seq == 1


async def test_a_snapshot_and_the_tail_behind_it_are_the_whole_room(log):
    state = RoomState((await log.head("r")).epoch)
    for number in range(20):
        (appended,) = await log.append("r", [draft(str(number))])
        apply(state, appended.event)
        if number == 11:
            await log.store_snapshot("r", state.snapshot())
    late = RoomState.from_snapshot(await log.snapshot("r"))
    assert late.seq == 12
    for appended in (await log.since("r", late.epoch, late.seq, 100)).events:
        apply(late, appended.event)
    assert late.hash() == state.hash()


async def test_rooms_are_listed(log):
    await log.append("b", [draft("a")])
    await log.append("a", [draft("a")])
    assert await log.rooms() == ["a", "b"]


async def test_a_room_that_was_only_looked_into_leaves_no_trace(log):
    """Anybody could fill the disk by asking for one new name after the other."""
    head = await log.head("r")
    assert await log.head("r") == head
    assert await log.since("r", head.epoch, 0, 100) == History((), head)
    assert await log.rooms() == []
    (first,) = await log.append("r", [draft("a")])
    assert (first.event.epoch, first.event.seq) == (head.epoch, 1)


async def test_acts_are_found_by_name(log):
    await log.append("r", [draft("a"), draft("b")])
    found = await log.find("r", [("mei", "a"), ("mei", "zzz"), ("wu", "a")])
    assert {act: each.event.seq for act, each in found.items()} == {("mei", "a"): 1}


async def test_many_at_once_are_numbered_without_holes(log):
    appended = await asyncio.gather(*(log.append("r", [draft(str(n))]) for n in range(200)))
    assert sorted(each.event.seq for (each,) in appended) == list(range(1, 201))


async def test_a_closed_log_says_so(log):
    await log.close()
    with pytest.raises(LogUnavailable):
        await log.append("r", [draft("a")])


WRITER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from server.database import Database
from server.log_sqlite import SqliteLog
from tests.contracts.test_log import draft

async def main():
    log = SqliteLog(Database(Path(sys.argv[1])))
    n = 0
    while True:
        names = [f"{{n}}-{{i}}" for i in range(5)]
        await log.append("r", [draft(name) for name in names])
        print(*names, flush=True)
        n += 1

asyncio.run(main())
"""


def killed_after(command: list[str], count: int) -> list[str]:
    """Run a writer, kill it when it said `count` words, and return all that it said."""
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert writer.stdout is not None
    said: list[str] = []
    for line in writer.stdout:
        said += line.split()
        if len(said) >= count:
            break
    os.kill(writer.pid, signal.SIGKILL)
    said += writer.stdout.read().split()
    writer.stdout.close()
    writer.wait()
    return said


@pytest.mark.fault
@pytest.mark.parametrize("after", [3, 40])
async def test_what_a_killed_writer_acknowledged_is_there_once_and_in_order(tmp_path, after):
    path = tmp_path / "killed.sqlite3"
    command = [sys.executable, "-c", WRITER.format(root=str(ROOT)), str(path)]
    acknowledged = killed_after(command, 5 * after)
    database = Database(path)
    log = SqliteLog(database)
    head = await log.head("r")
    history = await log.since("r", head.epoch, 0, 10**6)
    names = [each.event.op_id for each in history.events]
    await database.close()
    assert names[: len(acknowledged)] == acknowledged
    assert len(names) % 5 == 0, "an append is whole or not there"
    assert [each.event.seq for each in history.events] == list(range(1, len(names) + 1))
