"""A block's key changes with everything that made the block."""

from dataclasses import replace

import pytest
import torch

from engine.kv.blocks import BLOCK
from engine.kv.context import LayerGroup, MediaSpan
from engine.kv.keys import KEY_BYTES, Identity, chain
from tests.support.kv import SHAPE, WEIGHTS, some_tokens

TOKENS = some_tokens(3 * BLOCK + 5)
PICTURE = MediaSpan(b"\x01" * 32, 40, 10)


def keys(identity=WEIGHTS, tenant="clinic", tokens=TOKENS, spans=(PICTURE,)):
    return chain(identity, tenant, tokens, spans)


def test_there_is_one_full_key_a_block_and_it_is_the_same_again():
    assert keys() == keys() and len(keys()) == 4
    assert {len(key) for key in keys()} == {KEY_BYTES}
    assert KEY_BYTES * 8 >= 128


@pytest.mark.parametrize(
    "other",
    [
        Identity(b"weights-2", SHAPE),
        Identity(b"weights-1", replace(SHAPE, dtype=torch.float16)),
        Identity(b"weights-1", replace(SHAPE, groups=(LayerGroup(2, 2, 2),))),
        Identity(b"weights-1", replace(SHAPE, groups=(LayerGroup(1, 1, 4), LayerGroup(1, 1, 4)))),
    ],
)
def test_E5_E7_another_model_dtype_or_layout_shares_no_block(other):
    assert not set(keys()) & set(keys(other))


def test_E12_another_tenant_shares_no_block():
    assert not set(keys()) & set(keys(tenant="other"))


def test_a_changed_token_changes_its_block_and_all_behind_it():
    changed = list(TOKENS)
    changed[BLOCK] += 1
    same = [a == b for a, b in zip(keys(), keys(tokens=changed), strict=True)]
    assert same == [True, False, False, False]


def test_E1_E2_E3_pictures_that_differ_in_the_last_bit_are_two():
    other = replace(PICTURE, digest=PICTURE.digest[:-1] + b"\x00")
    same = [a == b for a, b in zip(keys(), keys(spans=(other,)), strict=True)]
    assert same == [True, False, False, False]


def test_E9_the_same_picture_at_another_place_of_equal_tokens_is_another():
    moved = replace(PICTURE, start=PICTURE.start + 1)
    assert keys()[0] == keys(spans=(moved,))[0] and keys()[1] != keys(spans=(moved,))[1]


def test_a_picture_across_a_border_is_in_both_blocks_and_one_behind_the_end_in_none():
    across = MediaSpan(b"\x01" * 32, BLOCK - 1, 2)
    assert keys(spans=(across,))[0] != keys(spans=())[0]
    behind = MediaSpan(b"\x01" * 32, len(TOKENS), 2)
    assert keys(spans=(behind,)) == keys(spans=())


def test_parts_cannot_be_read_as_each_others_ends():
    assert chain(WEIGHTS, "a", [], ()) == []
    one = chain(WEIGHTS, "ab", [1], ())
    assert one != chain(replace(WEIGHTS, model=b"weights-1a"), "b", [1], ())
