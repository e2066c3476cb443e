"""A sum cannot be cut: a state is true of the exact tokens it was saved at, or is not used."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import msgspec
import pytest
import torch

from engine.kv.blocks import Memory, Record, bytes_from, cut, cut_states, paste
from engine.kv.checkpoints import MAX_CHECKPOINTS, Checkpoints, State
from engine.kv.context import GRAIN, Budget, Context, common_prefix
from engine.kv.files import Damaged, Foreign, Torn, frames_of, read_session
from engine.kv.keys import Identity
from engine.kv.store import Store
from tests.support.kv import (
    HYBRID,
    KEY,
    SHAPE,
    STATE,
    SUMS,
    WEIGHTS,
    context_of,
    delta_save,
    extend,
    is_same,
    some_tokens,
    whole_save,
)


def talked(lengths, seed=1):
    """A context whose turns end at these lengths; each parts and ends as a session's do."""
    context = context_of([], HYBRID)
    for length in lengths:
        context.states.mark((context.length, length - 3))
        extend(context, some_tokens(length - context.length, seed + length))
    return context


def holds_true_states(context):
    """Whether each state is the one of its tokens, computed anew."""
    return all(
        torch.equal(state, context_of(context.tokens[:at], HYBRID).states.live.buffer)
        for at, state in context.states.at(context.length).items()
    )


def read(content, identity=SUMS):
    return read_session(io.BytesIO(content), len(content), identity, KEY)


def bytes_of(save, identity=SUMS):
    return b"".join(frames_of(save, identity))


def test_a_state_is_one_tensor_and_its_parts_are_views_of_it():
    state = State(STATE)
    assert state.buffer.nbytes == STATE.bytes == 3 * (2 * 4 * 5 * 4 + 3 * 7 * 2)
    assert not state.buffer.any()
    state.matrices[-1] = 2.5
    state.inputs[0] = -1.0
    same = State(STATE, state.buffer)
    assert (same.matrices[-1] == 2.5).all() and (same.inputs[0] == -1.0).all()
    assert not same.matrices[:-1].any() and not same.inputs[1:].any()
    state.matrices[-1] = 0
    assert (same.matrices[-1] == 2.5).all()


@pytest.mark.parametrize("length", [0, 1, 36, 37, 39, 40, 41, 96, 97, 98, 99, 100])
def test_E79_a_crop_goes_back_to_the_last_checkpoint_and_its_state_is_that_of_its_tokens(length):
    context = talked([40, 100])
    tokens = list(context.tokens)
    context.crop(length)
    assert context.length == max(at for at in (0, 37, 40, 97, 100) if at <= length)
    assert context.tokens == tokens[: context.length]
    assert is_same(context, context_of(context.tokens, HYBRID)) and holds_true_states(context)
    extend(context, some_tokens(7, 9))
    assert is_same(context, context_of(context.tokens, HYBRID))


def test_without_a_checkpoint_everything_is_computed_again():
    context = context_of(some_tokens(50), HYBRID)
    context.crop(49)
    assert context.length == 0 and not context.states.live.buffer.any()


def test_a_checkpoint_behind_the_crop_is_never_seen_again():
    """The tokens at its length are others by then."""
    context = talked([40, 100])
    context.crop(60)
    extend(context, some_tokens(60, 5))
    assert set(context.states.at(context.length)) == {37, 40, 100}
    context.crop(99)
    assert context.length == 40


def test_checkpoints_are_bounded_and_the_oldest_give_way():
    context = talked(range(10, 400, 10))
    states = context.states.at(context.length)
    assert sorted(states) == [377, 380, 387, 390] and len(states) == MAX_CHECKPOINTS + 1
    assert sum(state.nbytes for state in states.values()) <= STATE.reserved_bytes
    assert holds_true_states(context)


def test_a_length_that_was_passed_is_not_copied_later():
    states = Checkpoints(STATE)
    states.allocate()
    states.mark((0, 5, 9))
    assert states.pass_over(0, 5) == []
    assert [at for at, _ in states.pass_over(5, 9)] == [5]
    states.mark((3, 9))
    assert states.pass_over(6, 9) == []
    assert [at for at, _ in states.pass_over(9, 10)] == [9]
    assert states.pass_over(9, 12) == []


def test_the_budget_holds_the_states_and_is_never_exceeded():
    unit = HYBRID.bytes_of(GRAIN)
    assert unit == GRAIN * SHAPE.token_bytes + (1 + MAX_CHECKPOINTS) * STATE.bytes
    budget = Budget(2 * unit)
    contexts = {name: Context(HYBRID) for name in "abc"}
    for name in "abc":
        assert budget.reserve(name, contexts[name], 10)
        assert budget.used_bytes <= budget.limit_bytes
        budget.settle(name)
    assert contexts["a"].states.live is None and contexts["a"].bytes == 0
    assert contexts["c"].states.live is not None
    assert not Budget(unit - 1).could_ever_fit(10, HYBRID)
    assert Budget(unit).could_ever_fit(10, HYBRID)


def test_a_context_that_grows_keeps_its_states_and_takes_them_once():
    budget = Budget(HYBRID.bytes_of(2 * GRAIN) + GRAIN * SHAPE.token_bytes)
    context = Context(HYBRID)
    assert budget.reserve("a", context, GRAIN)
    extend(context, some_tokens(50))
    assert budget.reserve("a", context, GRAIN + 1)
    assert context.capacity == 2 * GRAIN
    assert is_same(context, context_of(some_tokens(50), HYBRID))


@pytest.mark.parametrize("known", [100, 99, 97, 60, 40, 39, 1])
def test_of_a_record_as_much_is_pasted_as_a_state_is_true_of(known):
    context = talked([40, 100])
    record = Record(
        Memory.of(context, {}), cut(context), None, states=tuple(cut_states(context).values())
    )
    assert record.bytes == bytes_from(context, 0) + record.memory.size_bytes
    back = Context(HYBRID)
    back.resize(130)
    paste(record, back, known)
    assert back.length == max(at for at in (0, 37, 40, 97, 100) if at <= known)
    assert is_same(back, context_of(context.tokens[: back.length], HYBRID))
    back.states.mark((known, 120))
    extend(back, some_tokens(30, 4))
    assert holds_true_states(back)


def test_states_are_stored_with_their_blocks_and_come_back_bit_for_bit():
    context = talked([40, 100])
    loaded = read(bytes_of(whole_save(context, 1)))
    assert loaded.memory.states == (37, 40, 97, 100)
    for at, state in zip(loaded.memory.states, loaded.states, strict=True):
        assert torch.equal(state, context.states.at(100)[at])


def test_a_delta_holds_the_new_states_alone_and_the_last_commit_says_which_are_true():
    context = talked([40, 100])
    parts = [bytes_of(whole_save(context, 1))]
    context.crop(98)
    context.states.mark((97, 120, 140))
    extend(context, some_tokens(60, 7))
    save = delta_save(context, 2)
    assert set(save.states) == {120, 140, 157} and save.memory.states == (97, 120, 140, 157)
    assert save.bytes == save.memory.size_bytes + sum(
        part.nbytes for part in (*save.blocks, *save.states.values())
    )
    parts.append(bytes_of(save))
    loaded = read(b"".join(parts))
    assert loaded.memory.states == save.memory.states
    for at, state in zip(loaded.memory.states, loaded.states, strict=True):
        assert torch.equal(state, context_of(context.tokens[:at], HYBRID).states.live.buffer)


def test_a_state_that_others_replaced_at_its_length_is_stored_again():
    context = talked([40, 100])
    whole_save(context, 1)
    context.crop(99)
    extend(context, some_tokens(3, 7))
    assert context.length == 100 and set(delta_save(context, 2).states) == {100}


def test_E27_cut_or_flipped_anywhere_it_is_never_another_state():
    context = talked([40, 100])
    first = bytes_of(whole_save(context, 1))
    context.crop(99)
    # The state of the whole is another one at the same length.
    extend(context, some_tokens(3, 3))
    content = first + bytes_of(delta_save(context, 2))
    ends = {len(first): read(first), len(content): read(content)}
    chance = random.Random(8)
    for size in (*range(0, len(first), 97), *range(len(first), len(content), 7)):
        if size < len(first):
            with pytest.raises(Torn):
                read(content[:size])
        else:
            assert equal(read(content[:size]), ends[len(first)])
    for _ in range(800):
        wrong = bytearray(content)
        wrong[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        try:
            assert equal(read(bytes(wrong)), ends[len(content)])
        except (Damaged, Foreign):
            continue


def equal(one, other):
    return one.memory == other.memory and all(
        torch.equal(a, b) for a, b in zip(one.states, other.states, strict=True)
    )


def test_E79_a_whole_state_of_other_tokens_is_refused():
    mine, theirs = talked([40, 100]), talked([40, 100], seed=2)
    parts = frames_of(whole_save(mine, 1), SUMS)
    others = frames_of(whole_save(theirs, 1), SUMS)
    # Behind the header and four blocks of two pieces each stand four states, then the commit.
    assert len(parts) == 1 + 2 * 4 + 2 * 4 + 1
    with pytest.raises(Damaged, match="the state of 40 other tokens"):
        read(b"".join([*parts[:11], *others[11:13], *parts[13:]]))
    with pytest.raises(Damaged, match="no state of 97 tokens"):
        read(b"".join([*parts[:13], *parts[15:]]))


def test_states_are_not_taken_for_tokens_when_a_read_is_weighed(disk_in, tmp_path):
    """Reading and computing are compared by tokens; a state is as large as many of them."""
    plain, hybrid = disk_in(tmp_path / "a"), disk_in(tmp_path / "b", identity=SUMS)
    assert plain.tokens_in(100 * SHAPE.token_bytes) == 100
    assert hybrid.tokens_in(HYBRID.bytes_of(100)) == 100 and hybrid.tokens_in(10) == 0


def test_another_layout_is_foreign_and_models_without_states_know_their_old_files():
    content = bytes_of(whole_save(talked([40]), 1))
    for shape in (SHAPE, replace(HYBRID, state=replace(STATE, taps=2))):
        with pytest.raises(Foreign):
            read(content, Identity(b"weights-2", shape))
    # What was written before there were states: the same name, and a memory without them.
    assert WEIGHTS.encoded() == b"1 little torch.bfloat16 2 1 4 32 776569676874732d31"
    old = msgspec.msgpack.encode((b"\1\0\0\0", (), {"t": b""}))
    assert msgspec.msgpack.decode(old, type=Memory) == Memory(b"\1\0\0\0", (), {"t": b""})


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_a_session_its_states_are_those_of_its_tokens(tmp_path, seed):
    """Turns, cuts, RAM, disk, restarts: what is found is bit for bit what computing it gives."""
    chance = random.Random(seed)
    reused = 0

    def opened():
        store = Store(SUMS, ram_bytes=1 << 20, folder=tmp_path / "kv", disk_bytes=1 << 20)
        store.start()
        return store

    store, context, tokens = opened(), Context(HYBRID), []
    for turn in range(40):
        wanted = tokens[: chance.randint(0, len(tokens))] if chance.random() < 0.4 else tokens
        wanted = [*wanted, *some_tokens(chance.randint(2, 60), 100 * seed + turn)][-700:]
        if context.capacity < len(wanted):
            context.resize(len(wanted))
        known = 0
        if not context.length:
            if (future := store.want(KEY)) is not None:
                future.result(10)
            if (memory := store.peek(KEY)) is not None:
                known = min(common_prefix(memory.token_ids(), wanted), len(wanted) - 1)
                store.restore(KEY, context, known)
            store.unwant(KEY)
        known = max(known, min(common_prefix(context.tokens, wanted), len(wanted) - 1))
        context.crop(known)
        reused += context.length
        context.states.mark_prompt(known, len(wanted))
        while context.length < len(wanted):
            step = chance.randint(1, 40)
            extend(context, wanted[context.length :][:step])
        assert is_same(context, context_of(wanted, HYBRID)) and holds_true_states(context)
        extend(context, some_tokens(chance.randint(0, 20), turn))
        tokens = list(context.tokens)
        store.keep(KEY, context, {})
        if chance.random() < 0.3:
            store.demote(KEY, context, {})
            context.release()
        if chance.random() < 0.3:
            store.stop()
            store.check_integrity()
            store, context = opened(), Context(HYBRID)
    counters = store.counters()
    store.stop()
    assert reused > 1000 and not counters.get("kv_integrity_failures")
