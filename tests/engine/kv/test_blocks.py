"""Blocks are the bits of a context, and pasting them is having computed them."""

import pytest
import torch

from engine.kv.blocks import (
    BLOCK,
    Memory,
    Record,
    block_count,
    bytes_from,
    cut,
    empty_block,
    paste,
)
from engine.kv.context import Context, MediaSpan
from tests.support.kv import MIXED, SHAPE, context_of, is_same, some_tokens


@pytest.mark.parametrize("shape", [SHAPE, MIXED], ids=["alike", "mixed"])
@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 7])
def test_E13_what_was_cut_and_pasted_is_bit_for_bit_what_was_there(length, shape):
    context = context_of(some_tokens(length), shape, [MediaSpan(b"d" * 16, 0, 1)])
    blocks = cut(context)
    assert len(blocks) == block_count(length)
    assert all(block.is_contiguous() for block in blocks)
    assert sum(block.nbytes for block in blocks) == bytes_from(context, 0)
    assert [tuple(block.shape) for block in blocks] == [
        empty_block(shape, block.shape[3]).shape for block in blocks
    ]
    back = Context(shape)
    back.resize(length + 3)
    paste(Record(Memory.of(context, {}), blocks), back, length)
    assert is_same(back, context) and back.spans == context.spans


def test_blocks_are_copies():
    context = context_of(some_tokens(40))
    blocks = cut(context)
    before = blocks[0].clone()
    context.stores[0].zero_()
    assert torch.equal(blocks[0], before)


@pytest.mark.parametrize("shape", [SHAPE, MIXED], ids=["alike", "mixed"])
def test_a_part_of_a_record_is_pasted_up_to_the_token(shape):
    context = context_of(some_tokens(100), shape)
    back = Context(shape)
    back.resize(70)
    paste(Record(Memory.of(context, {}), cut(context)), back, 70)
    context.crop(70)
    assert is_same(back, context)


def test_only_what_is_new_is_cut():
    context = context_of(some_tokens(100))
    assert [block.shape[3] for block in cut(context, 2)] == [32, 4]
    assert bytes_from(context, 2) == 36 * SHAPE.token_bytes
    assert bytes_from(context, 9) == 0 and cut(Context(SHAPE)) == []


def test_a_memory_tells_tokens_written_media_and_answers():
    context = context_of([7, 70_000, 3])
    context.spans = (MediaSpan(b"a" * 32, 1, 2), MediaSpan(b"b" * 32, 3, 5))
    memory = Memory.of(context, {"t1": [5, 6], "t2": []})
    assert memory.token_ids() == [7, 70_000, 3] and memory.length == 3
    # The second picture stands behind what was computed.
    assert memory.media() == context.spans[:1]
    assert memory.spoken() == {"t1": [5, 6], "t2": []}
    assert memory.size_bytes == 12 + 32 + 8
