"""One thread for the disk: order, wipes at any moment, and nothing reserved is left behind."""

from __future__ import annotations

import threading

import pytest

from engine.kv.cost import Costs
from engine.kv.ram import Ram
from engine.kv.spool import Spool, is_named
from tests.support.kv import KEY, FullDisk, context_of, delta_save, extend, some_tokens, whole_save


class Gate(FullDisk):
    """A disk that stands still at its next write until it is let go."""

    def __init__(self):
        super().__init__()
        self.reached, self.open = threading.Event(), threading.Event()
        self.open.set()

    def hold(self):
        self.reached.clear()
        self.open.clear()

    def __call__(self, path, mode):
        self.reached.set()
        assert self.open.wait(10)
        return super().__call__(path, mode)


@pytest.fixture
def parts(disk_in, tmp_path):
    """A spool over a disk that can be held, with RAM for a few sessions."""
    gate, ram = Gate(), Ram(100_000)
    disk = disk_in(tmp_path, opener=gate, is_open=False)
    spool = Spool(ram, disk, Costs())
    spool.start()
    yield spool, ram, disk, gate
    gate.open.set()
    spool.stop()
    ram.check_integrity()
    assert spool.staged_bytes == 0 and "kv_faults" not in spool.counters


def queue(spool, ram, save):
    assert ram.reserve(save.bytes)
    spool.save(save)
    return save


def test_what_was_saved_is_fetched_to_ram(parts):
    spool, ram, disk, _ = parts
    context = context_of(some_tokens(70))
    queue(spool, ram, whole_save(context, 1))
    spool.fetch(KEY).result(10)
    assert ram.get(KEY).memory.token_ids() == context.tokens
    assert spool.latest(KEY) == disk.number_of(KEY) == 1 and spool.read_seconds > 0


def test_a_fetch_comes_behind_the_saves_of_its_session_and_before_all_others(parts):
    spool, ram, disk, gate = parts
    gate.hold()
    queue(spool, ram, whole_save(context_of(some_tokens(40, seed=9)), 1, "c\0first"))
    assert gate.reached.wait(10)
    context = context_of(some_tokens(40))
    queue(spool, ram, whole_save(context_of(some_tokens(40, seed=8)), 2, "c\0other"))
    queue(spool, ram, whole_save(context, 3))
    extend(context, some_tokens(40, seed=2))
    queue(spool, ram, delta_save(context, 4))
    assert spool.latest(KEY) == 4
    future = spool.fetch(KEY)
    future.add_done_callback(lambda _: order.append(disk.number_of("c\0other")))
    order: list[int | None] = []
    gate.open.set()
    future.result(10)
    assert ram.get(KEY).memory.token_ids() == context.tokens and order == [None]


def test_a_session_nobody_knows_is_a_quick_no(parts):
    spool, ram, _, _ = parts
    spool.fetch("c\0nobody").result(10)
    assert not len(ram)


def test_a_wipe_takes_what_is_queued_in_hand_and_on_disk(parts, tmp_path):
    spool, ram, _, gate = parts
    context = context_of(some_tokens(40))
    queue(spool, ram, whole_save(context, 1))
    spool.fetch(KEY).result(10)
    gate.hold()
    queue(spool, ram, whole_save(context_of(some_tokens(40)), 2))
    assert gate.reached.wait(10)
    queue(spool, ram, whole_save(context_of(some_tokens(40)), 3))
    queue(spool, ram, whole_save(context_of(some_tokens(40)), 4, "other\0ward-3"))
    waiting = spool.fetch("other\0ward-3")
    gone = spool.wipe("ward-3")
    assert waiting.done(), "who waited for it goes on without"
    gate.open.set()
    gone.result(10)
    assert not list(tmp_path.glob("*.kv*"))
    ram.drop(KEY)


def test_a_session_wiped_while_it_is_read_does_not_come_back(parts, tmp_path):
    spool, ram, _, gate = parts
    queue(spool, ram, whole_save(context_of(some_tokens(40)), 1))
    spool.fetch(KEY).result(10)
    ram.drop(KEY)
    gate.hold()
    future = spool.fetch(KEY)
    assert gate.reached.wait(10)
    gone = spool.wipe("ward-3")
    gate.open.set()
    future.result(10)
    gone.result(10)
    assert not len(ram) and not list(tmp_path.glob("*.kv*"))


def test_a_prefetch_by_name_brings_each_tenants_but_what_is_live(parts):
    spool, ram, _, _ = parts
    for number, tenant in enumerate("abc", 1):
        queue(spool, ram, whole_save(context_of(some_tokens(40)), number, f"{tenant}\0ward-3"))
    queue(spool, ram, whole_save(context_of(some_tokens(40)), 9, "a\0ward-4"))
    for key in ("a\0ward-4", "c\0ward-3"):
        spool.fetch(key).result(10)
        ram.drop(key)
    spool.prefetch("ward-3", frozenset({"b\0ward-3"}))
    spool.stop()
    assert sorted(ram.keys()) == ["a\0ward-3", "c\0ward-3"]


def test_without_room_in_ram_a_session_stays_on_disk(parts):
    spool, ram, disk, _ = parts
    queue(spool, ram, whole_save(context_of(some_tokens(40)), 1))
    spool.fetch(KEY).result(10)
    ram.drop(KEY)
    assert ram.reserve(ram.limit_bytes - 10)
    spool.fetch(KEY).result(10)
    assert not len(ram) and spool.counters["kv_reads_without_room"] == 1
    ram.release(ram.limit_bytes - 10)
    spool.fetch(KEY).result(10)
    assert len(ram) == 1 and len(disk) == 1


def test_where_computing_is_faster_nothing_is_read(parts):
    spool, ram, _, _ = parts
    queue(spool, ram, whole_save(context_of(some_tokens(40)), 1))
    spool._costs.note_read(1 << 20, 1000.0)
    spool._costs.note_computed(1_000_000, 0.001)
    spool.fetch(KEY).result(10)
    assert not len(ram) and spool.counters["kv_recomputed_by_choice"] == 1


def test_names_of_sessions_are_whole():
    assert is_named("a\0ward", "ward") and not is_named("a\0ward-3", "ward")
    assert not is_named("ward\0a", "ward")
