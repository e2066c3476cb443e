"""Memory is reserved before it is taken, and the least recently used idle session goes first."""

import torch

from engine.kv.context import (
    GRAIN,
    Budget,
    Context,
    KVShape,
    MediaSpan,
    common_prefix,
    whole_spans,
)
from tests.support.kv import MIXED, context_of

SHAPE = KVShape.uniform(
    layers=2, heads=1, head_dim=4, dtype=torch.float32, device=torch.device("cpu")
)
UNIT = GRAIN * SHAPE.token_bytes


def test_growing_keeps_what_is_written():
    context = Context(SHAPE)
    context.resize(GRAIN)
    context.tokens = [1, 2, 3]
    context.stores[0][:, :, :, :3] = 7
    context.resize(2 * GRAIN)
    assert (context.stores[0][:, :, :, :3] == 7).all()
    assert context.bytes == 2 * UNIT


def test_layers_of_two_kinds_lie_in_two_tensors_and_grow_together():
    context = context_of([1, 2, 3], MIXED)
    before = [context.layer(layer)[:, :, :3].clone() for layer in range(4)]
    context.resize(2 * GRAIN)
    assert [tuple(kv.shape) for kv in before] == [(2, 2, 3, 4), (2, 1, 3, 8)] * 2
    assert all(torch.equal(context.layer(n)[:, :, :3], kv) for n, kv in enumerate(before))
    assert context.bytes == 2 * GRAIN * (2 * 2 * 2 * 4 + 2 * 8) * 2
    # The last layer sees what the second one wrote.
    assert context.layer(3).data_ptr() == context.layer(1).data_ptr()


def test_the_budget_is_never_exceeded_and_the_oldest_idle_session_goes():
    budget = Budget(3 * UNIT)
    contexts = {name: Context(SHAPE) for name in "abcd"}
    for name in "abc":
        assert budget.reserve(name, contexts[name], 10)
        budget.settle(name)
    budget.touch("a")
    assert budget.reserve("d", contexts["d"], 10)
    assert budget.used_bytes == 3 * UNIT
    assert not contexts["b"].stores and contexts["a"].stores
    assert budget.evictions == 1


def test_busy_sessions_are_not_evicted_and_the_newcomer_is_told_to_wait():
    budget = Budget(2 * UNIT)
    contexts = {name: Context(SHAPE) for name in "abc"}
    assert budget.reserve("a", contexts["a"], 10)
    assert budget.reserve("b", contexts["b"], 10)
    assert not budget.reserve("c", contexts["c"], 10)
    budget.settle("a")
    assert budget.reserve("c", contexts["c"], 10)
    assert not contexts["a"].stores


def test_a_session_that_cannot_grow_beside_its_old_self_is_computed_again():
    budget = Budget(2 * UNIT)
    context = Context(SHAPE)
    assert budget.reserve("a", context, GRAIN)
    context.tokens = [1, 2]
    budget.settle("a")
    assert budget.reserve("a", context, 2 * GRAIN)
    assert context.capacity == 2 * GRAIN and context.tokens == []


def test_a_prompt_larger_than_all_memory_is_known_beforehand():
    budget = Budget(2 * UNIT)
    assert budget.could_ever_fit(2 * GRAIN, SHAPE)
    assert not budget.could_ever_fit(2 * GRAIN + 1, SHAPE)


def test_the_common_prefix_ends_at_the_first_difference():
    assert common_prefix([1, 2, 3], [1, 2, 4]) == 2
    assert common_prefix([1, 2], [1, 2, 3]) == 2
    assert common_prefix([], [1]) == 0


def test_known_tokens_end_where_the_media_differ_and_never_inside_a_span():
    one, same = MediaSpan(b"one", 3, 4), MediaSpan(b"one", 3, 4)
    assert whole_spans(10, (), ()) == 10
    assert whole_spans(10, (one,), (same,)) == 10
    assert whole_spans(10, (one,), (MediaSpan(b"two", 3, 4),)) == 3
    assert whole_spans(10, (one,), (MediaSpan(b"one", 4, 4),)) == 3
    # Only one of the two has a picture there.
    assert whole_spans(10, (one,), ()) == whole_spans(10, (), (one,)) == 3
    # The context was cut inside the picture; what lies behind the known tokens does not matter.
    assert whole_spans(5, (one,), (same,)) == 3
    assert whole_spans(3, (one,), (MediaSpan(b"two", 3, 4),)) == 3
    assert whole_spans(20, (one, MediaSpan(b"a", 12, 2)), (same, MediaSpan(b"b", 12, 2))) == 12
