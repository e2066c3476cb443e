"""RAM is reserved before it is taken; the least recently used go, pinned ones stay."""

import random

import pytest

from engine.kv.blocks import Memory, Record, cut
from engine.kv.ram import Ram
from tests.support.kv import context_of, some_tokens


def record_of(tokens=64):
    context = context_of(some_tokens(tokens))
    return Record(Memory.of(context, {}), cut(context))


RECORD = record_of()


def filled(ram, *keys):
    for key in keys:
        assert ram.reserve(RECORD.bytes)
        ram.put(key, RECORD)
    return ram


def test_the_least_recently_used_goes():
    ram = filled(Ram(3 * RECORD.bytes), "a", "b", "c")
    assert ram.get("a") is RECORD
    filled(ram, "d")
    assert ram.keys() == ["c", "a", "d"] and ram.evictions == 1
    ram.check_integrity()


def test_E36_a_pinned_record_is_not_taken_from_who_waits_for_it():
    ram = filled(Ram(2 * RECORD.bytes), "a", "b")
    ram.pin("a")
    ram.pin("a")
    assert not ram.reserve(2 * RECORD.bytes)
    assert ram.keys() == ["a", "b"], "what cannot be had costs nobody anything"
    assert ram.reserve(RECORD.bytes) and ram.keys() == ["a"]
    ram.unpin("a")
    assert not ram.reserve(RECORD.bytes)
    ram.unpin("a")
    assert ram.reserve(RECORD.bytes) and not len(ram)


def test_E46_reserved_bytes_count_before_anything_is_there():
    ram = Ram(2 * RECORD.bytes)
    assert ram.reserve(RECORD.bytes) and ram.reserve(RECORD.bytes)
    assert ram.used_bytes == ram.limit_bytes and not ram.reserve(1)
    ram.release(RECORD.bytes)
    assert ram.reserve(1)


def test_a_record_put_twice_is_held_once():
    ram = filled(Ram(4 * RECORD.bytes), "a", "a")
    assert ram.used_bytes == RECORD.bytes
    ram.drop("a")
    ram.drop("a")
    assert ram.used_bytes == 0
    ram.check_integrity()


def test_what_was_forgotten_is_found_by_the_check():
    ram = filled(Ram(4 * RECORD.bytes), "a")
    ram.pin("b")
    with pytest.raises(AssertionError, match="pinned"):
        ram.check_integrity()
    ram.unpin("b")
    assert ram.reserve(5)
    with pytest.raises(AssertionError, match="counted"):
        ram.check_integrity()


def test_a_tier_of_nothing_holds_nothing():
    ram = Ram(0)
    assert not ram.reserve(1) and ram.reserve(0)


def test_any_order_of_acts_keeps_the_sum_right():
    chance = random.Random(3)
    sizes = [record_of(n) for n in (1, 32, 33, 100, 250)]
    ram, pinned = Ram(2 * sizes[-1].bytes), []
    for _ in range(3000):
        key = str(chance.randrange(12))
        match chance.randrange(6):
            case 0 | 1:
                record = chance.choice(sizes)
                if ram.reserve(record.bytes):
                    ram.put(key, record)
            case 2:
                ram.drop(key)
            case 3:
                ram.pin(key)
                pinned.append(key)
            case 4 if pinned:
                ram.unpin(pinned.pop(chance.randrange(len(pinned))))
            case _:
                ram.get(key)
        assert ram.used_bytes <= ram.limit_bytes
    while pinned:
        ram.unpin(pinned.pop())
    ram.check_integrity()
    assert ram.evictions > 100
