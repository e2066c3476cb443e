"""Files under a cap: found again, never half, never foreign, and a full disk is survived."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import torch

from engine.kv.blocks import BLOCK
from engine.kv.context import Context, KVShape
from engine.kv.disk import RETRY_S
from engine.kv.keys import Identity
from tests.support.kv import (
    KEY,
    SHAPE,
    FullDisk,
    context_of,
    delta_save,
    extend,
    some_tokens,
    whole_save,
)


def is_stored(disk, context, key=KEY):
    """Whether the disk gives back exactly the context."""
    record = disk.read(key)
    if record is None:
        return False
    assert record.memory.token_ids() == context.tokens
    bits = torch.cat(record.blocks, dim=3)
    return torch.equal(bits, context.read(0, context.length))


def files_in(folder: Path):
    return sorted(path for path in folder.iterdir() if path.name != "lock")


def key(n):
    return f"clinic\0room-{n}"


def test_a_save_and_its_deltas_are_read_bit_for_bit(disk_in, tmp_path):
    disk, context = disk_in(tmp_path), context_of(some_tokens(100))
    assert disk.write(whole_save(context, 1)) and is_stored(disk, context)
    for number in range(2, 6):
        extend(context, some_tokens(25, seed=number))
        before = disk.used_bytes
        assert disk.write(delta_save(context, number)) and is_stored(disk, context)
        # One block that was not full yet is written again, and the frames' own bytes.
        assert disk.used_bytes - before < (25 + BLOCK) * SHAPE.token_bytes + 1500
    context.crop(60)
    assert disk.write(delta_save(context, 6)) and is_stored(disk, context)
    disk.check_integrity()


def test_files_and_folder_are_the_owners_alone_and_name_nobody(disk_in, tmp_path):
    disk = disk_in(tmp_path / "kv")
    disk.write(whole_save(context_of(some_tokens(10)), 1))
    [path] = files_in(tmp_path / "kv")
    assert path.stat().st_mode & 0o077 == (tmp_path / "kv").stat().st_mode & 0o077 == 0
    assert "ward" not in path.name


def test_E25_E26_another_engine_finds_files_and_counts_their_bytes(disk_in, tmp_path):
    disk, contexts = disk_in(tmp_path), [context_of(some_tokens(50, seed=n)) for n in range(5)]
    for n, context in enumerate(contexts):
        disk.write(whole_save(context, n + 1, key(n)))
        os.utime(disk._path(key(n)), (1000 + n % 3, 1000 + n % 3))
    used = disk.used_bytes
    disk.close()
    again = disk_in(tmp_path, start=100)
    assert again.used_bytes == used and len(again) == 5
    assert [k[-1] for k in again.keys()] == ["0", "3", "1", "4", "2"], "oldest use first"
    assert all(is_stored(again, context, key(n)) for n, context in enumerate(contexts))
    again.check_integrity()


def test_what_is_read_gets_the_next_delta(disk_in, tmp_path):
    disk, context = disk_in(tmp_path), context_of(some_tokens(50))
    disk.write(whole_save(context, 1))
    disk.close()
    disk = disk_in(tmp_path, start=100)
    context.kept = disk.read(KEY).kept
    extend(context, some_tokens(50, seed=2))
    assert disk.write(delta_save(context, 200)) and is_stored(disk, context)


def test_a_tail_that_was_cut_short_is_cut_off_and_the_next_save_stands_behind_the_last(
    disk_in, tmp_path
):
    disk, context = disk_in(tmp_path), context_of(some_tokens(70))
    disk.write(whole_save(context, 1))
    before = context_of(context.tokens)
    extend(context, some_tokens(70, seed=2))
    disk.write(delta_save(context, 2))
    os.truncate(disk._path(KEY), disk.size_of(KEY) - 9)
    disk.close()
    disk = disk_in(tmp_path, start=100)
    assert is_stored(disk, before) and disk.counters["kv_files_torn"] == 1
    disk.check_integrity()
    before.kept = disk.read(KEY).kept
    extend(before, some_tokens(5, seed=3))
    assert disk.write(delta_save(before, 200)) and is_stored(disk, before)


@pytest.mark.parametrize(
    "other",
    [
        Identity(b"weights-2", SHAPE),
        Identity(b"weights-1", KVShape.uniform(2, 1, 4, torch.float16, SHAPE.device)),
    ],
)
def test_files_of_another_model_or_dtype_are_deleted_and_counted(disk_in, tmp_path, other):
    disk = disk_in(tmp_path)
    disk.write(whole_save(context_of(some_tokens(50)), 1))
    disk.close()
    again = disk_in(tmp_path, identity=other)
    assert again.read(KEY) is None and again.counters["kv_files_foreign"] == 1
    assert not files_in(tmp_path) and again.used_bytes == 0


def test_files_of_an_old_version_and_unfinished_ones_are_deleted(disk_in, tmp_path, monkeypatch):
    disk = disk_in(tmp_path)
    disk.write(whole_save(context_of(some_tokens(50)), 1))
    disk.close()
    (tmp_path / "1234.kv-new").write_bytes(b"half of it")
    (tmp_path / "5678.kv").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("not ours")
    monkeypatch.setattr("engine.kv.keys.FORMAT", 2)
    again = disk_in(tmp_path)
    assert [path.name for path in files_in(tmp_path)] == ["notes.txt"] and not len(again)


def test_E27_a_truncated_missing_or_flipped_file_is_a_miss_deleted_and_counted(disk_in, tmp_path):
    for harm, counter in (
        (lambda path: os.truncate(path, 300), "kv_integrity_failures"),
        (lambda path: path.unlink(), "kv_files_lost"),
        (lambda path: path.write_bytes(b"y" + path.read_bytes()[1:]), "kv_integrity_failures"),
    ):
        folder = tmp_path / counter / str(harm)
        disk = disk_in(folder)
        disk.write(whole_save(context_of(some_tokens(50)), 1))
        harm(disk._path(KEY))
        assert disk.read(KEY) is None and disk.counters[counter] == 1
        assert not files_in(folder) and disk.used_bytes == 0
        disk.check_integrity()


def test_a_delta_to_a_file_that_was_changed_under_us_does_not_happen(disk_in, tmp_path):
    for harm in (lambda path: os.truncate(path, 300), lambda path: path.unlink()):
        disk, context = disk_in(tmp_path), context_of(some_tokens(50))
        disk.write(whole_save(context, 1))
        harm(disk._path(KEY))
        extend(context, some_tokens(5))
        assert not disk.write(delta_save(context, 2))
        assert disk.number_of(KEY) is None and disk.read(KEY) is None
        assert disk.counters["kv_files_lost"] == 1 and not files_in(tmp_path)
        assert disk.write(whole_save(context, 3)) and is_stored(disk, context)
        disk.close()


def test_E38_a_delta_without_the_save_before_it_does_not_happen(disk_in, tmp_path):
    disk, context = disk_in(tmp_path), context_of(some_tokens(50))
    disk.write(whole_save(context, 1))
    extend(context, some_tokens(50))
    delta_save(context, 2)
    extend(context, some_tokens(50))
    assert not disk.write(delta_save(context, 3))
    assert disk.counters["kv_saves_out_of_step"] == 1
    assert disk.read(KEY).memory.length == 50


def test_E29_the_cap_is_never_passed_and_the_oldest_go(disk_in, tmp_path):
    limit = 40_000
    disk, chance, alive = disk_in(tmp_path, limit=limit), random.Random(4), {}
    for number in range(1, 120):
        name = key(chance.randrange(15))
        if name in alive and disk.number_of(name) == alive[name].kept.number:
            extend(alive[name], some_tokens(chance.randrange(1, 60), seed=number))
            save = delta_save(alive[name], number, name)
        else:
            alive[name] = context_of(some_tokens(chance.randrange(1, 200), seed=number))
            save = whole_save(alive[name], number, name)
        disk.write(save)
        on_disk = sum(path.stat().st_size for path in files_in(tmp_path))
        assert on_disk == disk.used_bytes <= limit
        for known in disk.keys():
            if disk.number_of(known) == alive[known].kept.number:
                assert is_stored(disk, alive[known], known)
    assert disk.counters["kv_disk_evictions"] > 10
    disk.check_integrity()


def test_a_session_larger_than_the_cap_is_left_out_and_said_so(disk_in, tmp_path):
    disk = disk_in(tmp_path, limit=5000)
    disk.write(whole_save(context_of(some_tokens(20)), 1, key(0)))
    assert not disk.write(whole_save(context_of(some_tokens(500)), 2))
    assert disk.counters["kv_saves_without_room"] == 1
    disk.check_integrity()


def test_a_file_is_replaced_also_where_two_of_it_do_not_fit(disk_in, tmp_path):
    context = context_of(some_tokens(100))
    disk = disk_in(tmp_path, limit=6000)
    assert disk.write(whole_save(context, 1)) and disk.write(whole_save(context, 2))
    assert is_stored(disk, context)
    disk.check_integrity()


def test_E31_the_floor_of_free_space_holds_whoever_fills_the_disk(disk_in, tmp_path, monkeypatch):
    disk = disk_in(tmp_path, floor=1000)
    for n in range(4):
        disk.write(whole_save(context_of(some_tokens(50)), n + 1, key(n)))
    size = disk.size_of(key(0))

    class Free:
        f_frsize = 1

        @property
        def f_bavail(self):
            return 1000 + size // 2 + size * (4 - len(files_in(tmp_path)))

    monkeypatch.setattr(os, "statvfs", lambda path: Free())
    assert disk.write(whole_save(context_of(some_tokens(50)), 9))
    assert disk.counters["kv_disk_evictions"] == 1 and disk.number_of(key(0)) is None
    disk.check_integrity()


def disk_full_after(disk_in, folder, left, clock):
    opener = FullDisk(None)
    disk = disk_in(folder, opener=opener, clock=clock)
    context = context_of(some_tokens(70))
    assert disk.write(whole_save(context, 1))
    opener.left = left
    return disk, opener, context


def test_E34_a_disk_that_is_full_at_any_write_loses_nothing_and_rests(disk_in, tmp_path):
    """Nothing else is there to be deleted, so the tier rests and is tried again."""
    probe, opener, context = disk_full_after(disk_in, tmp_path / "probe", 1 << 30, lambda: 0.0)
    extend(context, some_tokens(70, seed=2))
    probe.write(delta_save(context, 2))
    need = (1 << 30) - opener.left
    for kind in ("delta", "whole"):
        for left in range(0, need, 97):
            now = [0.0]
            folder = tmp_path / f"{kind}{left}"
            disk, opener, context = disk_full_after(disk_in, folder, left, lambda now=now: now[0])
            before = context_of(context.tokens)
            extend(context, some_tokens(70, seed=2))
            save = delta_save(context, 2) if kind == "delta" else whole_save(context, 2)
            assert not disk.write(save) and opener.failing == 1
            assert disk.is_off and disk.counters["kv_write_failures"] == 1
            disk.check_integrity()
            assert is_stored(disk, before), "what was there before still is"
            now[0], opener.left = RETRY_S, None
            assert not disk.is_off and disk.write(save) and is_stored(disk, context)
            disk.close()


def test_a_full_disk_costs_the_oldest_file_and_one_more_attempt(disk_in, tmp_path):
    opener = FullDisk()
    disk = disk_in(tmp_path, opener=opener)
    for n in range(3):
        disk.write(whole_save(context_of(some_tokens(50)), n + 1, key(n)))
    context = context_of(some_tokens(60))
    opener.left = 100

    def unlink(path, real=disk.remove):
        opener.left = None
        return real(path)

    disk.remove = unlink
    assert disk.write(whole_save(context, 9)) and is_stored(disk, context)
    assert not disk.is_off and disk.counters["kv_disk_evictions"] == 1 and len(disk) == 3
    disk.check_integrity()


def test_two_engines_on_one_folder_are_one_with_a_disk_and_one_without(disk_in, tmp_path):
    now = [0.0]
    first = disk_in(tmp_path)
    first.write(whole_save(context_of(some_tokens(50)), 1))
    second = disk_in(tmp_path, is_open=False, clock=lambda: now[0])
    assert not second.open() and second.is_off and second.counters["kv_disk_rests"] == 1
    assert not second.open() and second.counters["kv_disk_rests"] == 1, "tried once a minute"
    assert first.read(KEY) is not None and len(files_in(tmp_path)) == 1
    first.close()
    now[0] = RETRY_S
    assert second.open() and second.read(KEY) is not None


def test_a_folder_that_cannot_be_made_is_a_tier_that_rests(disk_in, tmp_path):
    (tmp_path / "file").write_text("")
    disk = disk_in(tmp_path / "file" / "kv", is_open=False)
    assert not disk.open() and disk.is_off


def test_E22_nothing_saved_is_nothing_read(disk_in, tmp_path):
    disk = disk_in(tmp_path)
    assert disk.read("nobody\0") is None and disk.remove("nobody\0")
    context = Context(SHAPE)
    assert disk.write(whole_save(context, 1)) and disk.read(KEY).memory.length == 0
