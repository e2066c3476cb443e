"""The tiers together: what is restored is what was there, and every byte is inside its budget."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from engine.kv.context import Context, KVShape, common_prefix
from engine.kv.keys import Identity
from engine.kv.store import Store
from tests.support.kv import KEY, SHAPE, WEIGHTS, context_of, extend, is_same, some_tokens

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def make_store(tmp_path):
    """Make started stores on one folder; all are stopped and counted in the end."""
    running = []

    def make(ram=1 << 20, disk=1 << 20, identity=WEIGHTS):
        folder = tmp_path / "kv" if disk else None
        store = Store(identity, ram_bytes=ram, folder=folder, disk_bytes=disk)
        store.start()
        running.append(store)
        return store

    yield make
    for store in running:
        close(store)


def close(store):
    store.stop()
    store.check_integrity()


def bring(store, key=KEY, shape=SHAPE):
    """What a turn does before it starts."""
    future = store.want(key)
    if future is not None:
        future.result(10)
    context = Context(shape)
    memory = store.peek(key)
    if memory is not None:
        context.resize(max(memory.length, 1))
        store.restore(key, context, memory.length)
    store.unwant(key)
    return context


def test_a_demoted_session_comes_back_from_ram(make_store):
    store = make_store(disk=0)
    context = context_of(some_tokens(100))
    store.demote(KEY, context, {"t": [1, 2]})
    assert store.peek(KEY).spoken() == {"t": [1, 2]}
    assert is_same(bring(store), context)
    assert store.gauges()["kv_ram_bytes"] == 0 and store.counters()["kv_ram_hits"] == 1


def test_E25_a_kept_session_comes_back_in_another_store(make_store):
    store = make_store()
    context = context_of(some_tokens(100))
    store.keep(KEY, context, {"t": [1, 2]})
    store.stop()
    again = make_store()
    restored = bring(again)
    assert is_same(restored, context)
    assert again.counters()["kv_disk_hits"] == 1 and again.counters()["kv_disk_tokens"] == 100


def test_only_what_is_new_is_written(make_store, tmp_path):
    store = make_store()
    context = context_of(some_tokens(640))
    store.keep(KEY, context, {})
    store.stop()
    [path] = (tmp_path / "kv").glob("*.kv")
    before = path.stat().st_size
    store = make_store()
    restored = bring(store)
    extend(restored, some_tokens(10, seed=2))
    store.keep(KEY, restored, {})
    store.keep(KEY, restored, {})
    store.stop()
    # Ten tokens, and what is repeated with each commit: the ids, 4 bytes each.
    assert path.stat().st_size - before < 10 * SHAPE.token_bytes + 650 * 4 + 1000
    again = make_store()
    assert is_same(bring(again), restored)


def test_a_session_that_went_back_is_stored_as_it_is_now(make_store):
    store = make_store()
    context = context_of(some_tokens(200))
    store.keep(KEY, context, {})
    for length, seed in ((150, 2), (64, 3), (33, 4), (20, 5)):
        context.crop(length)
        extend(context, some_tokens(7, seed=seed))
        store.keep(KEY, context, {})
    store.stop()
    assert is_same(bring(make_store()), context)


def test_bits_that_were_computed_again_replace_those_that_are_stored(make_store):
    """Equal tokens may get other last bits; a mixture of both would be neither."""
    store = make_store()
    context = context_of(some_tokens(100))
    store.keep(KEY, context, {})
    tokens = list(context.tokens)
    context.release()
    context.resize(100)
    context.tokens = tokens
    context.stores[0].fill_(0.5)
    store.keep(KEY, context, {})
    store.stop()
    assert is_same(bring(make_store()), context)


def test_a_file_that_is_mostly_replaced_is_written_anew(make_store, tmp_path):
    store = make_store(ram=16 << 20, disk=16 << 20)
    context = context_of(some_tokens(9000))
    for turn in range(12):
        context.crop(100)
        extend(context, some_tokens(8000, seed=turn))
        store.keep(KEY, context, {})
        # Its place in the queue is seen from the outside by waiting for a read behind it.
        store._spool.fetch(KEY).result(10)
        store._ram.drop(KEY)
    store.stop()
    [path] = (tmp_path / "kv").glob("*.kv")
    assert path.stat().st_size < 4 * context.length * SHAPE.token_bytes + (1 << 20)
    assert is_same(bring(make_store(ram=16 << 20, disk=16 << 20)), context)


def test_E38_a_save_that_failed_is_made_up_for_by_the_next_turn(make_store, tmp_path):
    store = make_store()
    context = context_of(some_tokens(100))
    store.keep(KEY, context, {})
    store._spool.fetch(KEY).result(10)
    [path] = (tmp_path / "kv").glob("*.kv")
    path.unlink()
    extend(context, some_tokens(10, seed=2))
    store.keep(KEY, context, {})
    store._spool.fetch("c\0nobody").result(10)
    extend(context, some_tokens(10, seed=3))
    store.keep(KEY, context, {})
    store.stop()
    assert is_same(bring(make_store()), context)


def test_saves_that_find_no_room_are_left_out_and_counted(make_store):
    store = make_store(ram=3000)
    store.keep(KEY, context_of(some_tokens(100)), {})
    store.demote("c\0other", context_of(some_tokens(100)), {})
    assert store.counters()["kv_saves_skipped"] == 1
    assert store.counters()["kv_demotions_without_room"] == 1
    assert store.gauges()["kv_ram_bytes"] == 0


def test_E22_an_empty_session_is_nothing(make_store, tmp_path):
    store = make_store()
    store.keep(KEY, Context(SHAPE), {})
    store.demote(KEY, Context(SHAPE), {})
    assert bring(store).length == 0 and store.peek(KEY) is None
    store.wipe("ward-3").result(10)


def test_a_wiped_session_is_nowhere(make_store, tmp_path):
    store = make_store()
    context = context_of(some_tokens(100))
    store.keep(KEY, context, {})
    store.demote(KEY, context, {})
    store.demote("other\0ward-4", context, {})
    store.wipe("ward-3").result(10)
    assert store.peek(KEY) is None and store.peek("other\0ward-4") is not None
    assert not list((tmp_path / "kv").glob("*.kv*"))


def test_ten_thousand_sessions_never_say_a_wrong_token_nor_pass_a_budget(make_store, tmp_path):
    """Seeded; CONSILIUM_SOAK_SESSIONS=10000 is the whole count, budgets grow along."""
    sessions = int(os.environ.get("CONSILIUM_SOAK_SESSIONS", "600"))
    # 20 KB of RAM and 100 KB of disk a session: the shares of 200 MB and 1 GB of ten thousand.
    ram, disk = sessions * 20_000, sessions * 100_000
    shape = KVShape.uniform(8, 2, 16, SHAPE.dtype, SHAPE.device)
    identity = Identity(b"weights-1", shape)
    chance = random.Random(12)
    store, said = make_store(ram, disk, identity), {}
    hits, counters = 0, Counter()
    for turn in range(4 * sessions):
        key = f"clinic\0room-{chance.randrange(sessions)}"
        context = bring(store, key, shape)
        tokens = said.get(key, [])
        known = common_prefix(context.tokens, tokens)
        hits += known > 0
        expected = context_of(context.tokens, shape)
        assert known == context.length and is_same(context, expected), key
        extend(context, tokens[known:] + some_tokens(chance.randrange(1, 60), seed=turn))
        said[key] = list(context.tokens)
        store.keep(key, context, {})
        if chance.random() < 0.9:
            store.demote(key, context, {})
        gauges = store.gauges()
        assert gauges["kv_ram_bytes"] <= ram and gauges["kv_disk_bytes"] <= disk
        if chance.random() < 0.01:
            store.wipe(key.partition("\0")[2]).result(10)
            said.pop(key)
        if turn % sessions == sessions - 1:
            close(store)
            counters.update(store.counters())
            store = make_store(ram, disk, identity)
    assert hits > sessions and counters["kv_ram_hits"] and counters["kv_disk_hits"]
    assert counters["kv_ram_evictions"] and counters["kv_disk_evictions"]
    assert not counters["kv_integrity_failures"] and not counters["kv_faults"]
    close(store)
    files = [path.stat().st_size for path in (tmp_path / "kv").glob("*.kv*")]
    assert sum(files) <= disk and len(files) <= sessions


CHILD = """
import sys, random
from pathlib import Path
from engine.kv.keys import Identity
from engine.kv.store import Store
from tests.support.kv import *
store = Store(WEIGHTS, ram_bytes=1 << 22, folder=Path(sys.argv[1]), disk_bytes=1 << 22)
store.start()
seed = int(sys.argv[2])
contexts = {n: context_of(some_tokens(200, seed=n)) for n in range(6)}
print("ready", flush=True)
turn = 0
while True:
    turn += 1
    n = (turn + seed) % 6
    context = contexts[n]
    context.crop(150 + (turn * 7) % 50)
    extend(context, some_tokens(40, seed=turn))
    store.keep(f"clinic\\0room-{n}", context, {})
"""


def test_kill_9_at_any_write_leaves_whole_sessions_or_none(make_store, tmp_path):
    """CONSILIUM_SOAK_KILLS sets the rounds. The bits of a context follow from its tokens."""
    rounds = int(os.environ.get("CONSILIUM_SOAK_KILLS", "3"))
    chance, found = random.Random(13), 0
    for number in range(rounds):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "kv"), str(number)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        try:
            assert child.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0.0, 0.3))
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            child.stdout.close()
        store = make_store(1 << 22, 1 << 22)
        for n in range(6):
            context = bring(store, f"clinic\0room-{n}")
            assert is_same(context, context_of(context.tokens))
            found += context.length > 0
        close(store)
        assert not list((tmp_path / "kv").glob("*.kv-new"))
    assert found
