"""A file is read back bit for bit or not at all, whatever happened to it."""

import io
import random

import pytest
import torch

from engine.kv.blocks import BLOCK
from engine.kv.context import KVShape
from engine.kv.files import (
    HEAD_BYTES,
    Damaged,
    Foreign,
    Torn,
    frames_of,
    read_header,
    read_session,
)
from engine.kv.keys import Identity
from tests.support.kv import (
    KEY,
    SHAPE,
    WEIGHTS,
    context_of,
    delta_save,
    extend,
    some_tokens,
    whole_save,
)


def bytes_of(save):
    return b"".join(frames_of(save, WEIGHTS))


def read(content, key=KEY, identity=WEIGHTS):
    return read_session(io.BytesIO(content), len(content), identity, key)


def holds(loaded, tokens, blocks):
    return loaded.memory.token_ids() == tokens and all(
        torch.equal(a, b) for a, b in zip(loaded.blocks, blocks, strict=True)
    )


@pytest.fixture(scope="module")
def history():
    """Three saves of one session; the second goes back behind the end of the first."""
    context = context_of(some_tokens(2 * BLOCK + 9))
    saves, states = [], []
    saves.append(whole_save(context, 1, answers={"t": [1, 2, 3]}))
    states.append((list(context.tokens), whole_save(context_of(context.tokens), 0).blocks))
    context.crop(BLOCK + 3)
    extend(context, some_tokens(20, seed=2))
    saves.append(delta_save(context, 2))
    states.append((list(context.tokens), whole_save(context_of(context.tokens), 0).blocks))
    extend(context, some_tokens(3 * BLOCK, seed=3))
    saves.append(delta_save(context, 3))
    states.append((list(context.tokens), whole_save(context_of(context.tokens), 0).blocks))
    return [bytes_of(save) for save in saves], states


@pytest.mark.parametrize("upto", [1, 2, 3])
def test_the_last_commit_is_what_is_read(history, upto):
    parts, states = history
    content = b"".join(parts[:upto])
    loaded = read(content)
    assert holds(loaded, *states[upto - 1]) and loaded.end == len(content)


def test_a_delta_holds_no_block_that_did_not_change(history):
    parts, _ = history
    block = BLOCK * SHAPE.token_bytes
    assert len(parts[1]) < block + 1000 < len(parts[0])


def test_answers_come_back(history):
    assert read(history[0][0]).memory.spoken() == {"t": [1, 2, 3]}


def test_E27_cut_anywhere_it_is_an_older_commit_or_nothing(history):
    """kill -9 at any write leaves the beginning of what was to be written."""
    parts, states = history
    ends = [len(b"".join(parts[:n])) for n in (1, 2, 3)]
    content = b"".join(parts)
    chance = random.Random(5)
    near = {end + shift for end in ends for shift in range(-HEAD_BYTES - 2, HEAD_BYTES + 2)}
    for size in sorted(
        {n for n in near if n <= ends[-1]} | set(chance.sample(range(ends[-1]), 300))
    ):
        whole = [n for n, end in enumerate(ends) if end <= size]
        if not whole:
            with pytest.raises(Torn):
                read(content[:size])
            continue
        loaded = read(content[:size])
        assert holds(loaded, *states[whole[-1]]), size
        assert loaded.end == ends[whole[-1]]


def test_a_flipped_bit_anywhere_is_never_another_answer(history):
    parts, states = history
    content = b"".join(parts)
    chance = random.Random(6)
    seen = set()
    for _ in range(1500):
        place = chance.randrange(len(content))
        wrong = bytearray(content)
        wrong[place] ^= 1 << chance.randrange(8)
        try:
            loaded = read(bytes(wrong))
        except (Damaged, Foreign, Torn) as error:
            seen.add(type(error))
            continue
        # What no commit needs any more is not read, so it may be wrong.
        assert holds(loaded, *states[-1]), place
        seen.add(None)
    assert {Damaged, None} <= seen and Torn not in seen


def test_zeros_in_place_of_what_was_written_are_damage(history):
    """What a power cut leaves when the length was written and the bytes were not."""
    content = history[0][0]
    for start in range(0, len(content), 97):
        with pytest.raises((Damaged, Torn)):
            read(content[:start] + bytes(len(content) - start))


def test_another_model_dtype_or_version_is_foreign(history, monkeypatch):
    content = history[0][0]
    for other in (
        Identity(b"weights-2", SHAPE),
        Identity(b"weights-1", KVShape.uniform(2, 1, 4, torch.float16, SHAPE.device)),
    ):
        with pytest.raises(Foreign):
            read(content, identity=other)
    monkeypatch.setattr("engine.kv.keys.FORMAT", 2)
    with pytest.raises(Foreign):
        read(content)


def test_another_sessions_file_is_no_file_of_this_one(history):
    with pytest.raises(Damaged, match="another session"):
        read(history[0][0], key="clinic\0ward-4")


def test_E4_blocks_of_other_tokens_are_refused(history):
    """E4, E27: every frame is whole, but they do not belong together."""
    context = context_of(some_tokens(2 * BLOCK + 9, seed=9))
    theirs = frames_of(whole_save(context, 1), WEIGHTS)
    mine = frames_of(whole_save(context_of(some_tokens(2 * BLOCK + 9)), 1), WEIGHTS)
    with pytest.raises(Damaged, match="other tokens"):
        read(b"".join([*mine[:3], *theirs[3:5], *mine[5:]]))
    with pytest.raises(Damaged, match="behind"):
        read(b"".join([*mine[:1], *mine[3:]]))
    with pytest.raises(Damaged, match="blocks for"):
        read(b"".join([*mine[:5], *mine[7:]]))


def test_what_is_no_file_of_ours_is_damage():
    for content in (b"x" * 500, bytes(500), b"CSKV" + bytes(500)):
        with pytest.raises(Damaged):
            read(content)
    with pytest.raises(Torn):
        read_header(io.BytesIO(b""), 0, WEIGHTS)
