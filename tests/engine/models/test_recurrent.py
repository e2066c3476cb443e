"""Each session's rows go through its own state, whatever stands beside them and where cuts fall."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from engine.config import UnsupportedModel
from engine.kv.context import Context
from engine.models.backend import Backend, Segment
from engine.models.determinism import is_deterministic
from engine.models.linear import pack
from tests.engine.conftest import tiny_model
from tests.support.kv import some_tokens

VOCABULARY = 300
CAN_PACK = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


@pytest.fixture
def backend():
    return Backend(tiny_model("recurrent", VOCABULARY))


@pytest.fixture
def plain():
    return tiny_model("recurrent", VOCABULARY)


def ids(count, seed=1):
    return [3 + token % (VOCABULARY - 3) for token in some_tokens(count, seed)]


def context(backend):
    made = Context(backend.shape)
    made.resize(512)
    return made


def run(backend, made, tokens, window=1000):
    for at in range(0, len(tokens), window):
        [logits] = backend.run([Segment(made, tokens[at : at + window], True)])
    return logits


@torch.inference_mode()
def expected(plain, tokens):
    return plain(torch.tensor([tokens])).logits[0, -1]


def is_close(one, other):
    return torch.allclose(one, other, atol=2e-3)


@pytest.mark.parametrize("window", [1, 3, 63, 64, 65, 129, 1000])
def test_E77_a_prompt_in_windows_of_any_size_is_the_prompt_in_one(backend, plain, window):
    """The library takes 64 tokens at once, from wherever it begins."""
    tokens = ids(150)
    assert is_close(run(backend, context(backend), tokens, window), expected(plain, tokens))


def test_sessions_in_one_step_do_not_see_each_other(backend, plain):
    prompts = [ids(90, 1), ids(40, 2), ids(7, 3), ids(1, 4)]
    contexts = [context(backend) for _ in prompts]
    for window in (1, 20, 70):
        step = [
            Segment(made, prompt[made.length :][:window], True)
            for made, prompt in zip(contexts, prompts, strict=True)
            if made.length < len(prompt)
        ]
        backend.run(step[::-1])
    for made, prompt in zip(contexts, prompts, strict=True):
        assert made.tokens == prompt
        assert is_close(run(backend, made, [9, 8]), expected(plain, [*prompt, 9, 8]))


def test_checkpoints_are_copied_inside_of_a_window_and_are_those_of_their_tokens(backend):
    tokens = ids(150)
    whole = context(backend)
    whole.states.mark((70, 149))
    run(backend, whole, tokens)
    states = whole.states.at(150)
    assert sorted(states) == [70, 149, 150]
    for at, state in states.items():
        alone = context(backend)
        run(backend, alone, tokens[:at])
        live = alone.states.live
        kept = whole.shape.state
        matrices = state[: kept.matrix_bytes].view(torch.float32)
        assert torch.allclose(matrices, live.matrices.flatten(), atol=1e-4)
        inputs = state[kept.matrix_bytes :].view(kept.dtype)
        assert torch.allclose(inputs, live.inputs.flatten(), atol=1e-4)


@pytest.mark.parametrize("length", [149, 148, 100, 70, 69, 5, 0])
def test_E79_after_a_crop_to_any_length_it_computes_as_if_the_rest_had_never_been(
    backend, plain, length
):
    tokens = ids(150)
    made = context(backend)
    made.states.mark((70, 149))
    run(backend, made, tokens)
    made.crop(length)
    assert made.length == max(at for at in (0, 70, 149) if at <= length)
    asked = [*tokens[:length], *ids(20, 5)]
    assert is_close(run(backend, made, asked[made.length :]), expected(plain, asked))


def test_only_attention_layers_take_keys_and_values(backend):
    assert (backend.shape.groups[0].layers, backend.shape.state.layers) == (1, 2)
    assert backend.shape.token_bytes == 2 * 2 * 16 * 4


def test_token_by_token_in_the_deterministic_mode_is_the_same_to_rounding(backend, plain):
    exact = Backend(tiny_model("recurrent", VOCABULARY), is_deterministic=True)
    tokens = ids(90)
    assert is_close(run(exact, context(exact), tokens, 40), expected(plain, tokens))


@pytest.mark.skipif(not CAN_PACK, reason="this CPU has no bf16 matrix kernels")
def test_in_the_deterministic_mode_its_bits_depend_on_nothing_beside_it():
    """The fast mode failing shows that the check can see a difference at all."""
    found = []
    for is_exact in (True, False):
        model = tiny_model("recurrent", VOCABULARY).bfloat16()
        made = Backend(model, is_deterministic=is_exact)
        pack(made.model, 32 if is_exact else None)
        found.append(is_deterministic(made))
    assert found == [True, False]


def test_only_proven_families_are_taken():
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    kinds = ["linear_attention"]
    other = Qwen3NextConfig(**sizes, **heads, layer_types=kinds, num_experts=2)
    with pytest.raises(UnsupportedModel, match="qwen3_next has linear_attention layers"):
        Backend(Qwen3NextForCausalLM(other))
    sums_only = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**sizes, **heads, layer_types=kinds))
    with pytest.raises(UnsupportedModel, match="no attention layers"):
        Backend(sums_only)
