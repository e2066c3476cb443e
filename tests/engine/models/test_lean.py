"""The lean path computes what the model's own forward does."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from engine.kv.context import Context
from engine.models.backend import Backend, Segment
from engine.models.lean import is_plain
from engine.models.linear import PackedLinear

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0}
CONFIGS = {
    "llama": lambda: LlamaConfig(**SHAPE),
    "biases": lambda: LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True),
    "one head a key": lambda: LlamaConfig(**{**SHAPE, "num_key_value_heads": 4}),
    "long rope": lambda: LlamaConfig(**SHAPE, rope_parameters=YARN),
    "tied": lambda: LlamaConfig(**{**SHAPE, "tie_word_embeddings": True}),
    "other activation": lambda: LlamaConfig(**SHAPE, hidden_act="gelu"),
    "qwen3": lambda: Qwen3Config(**SHAPE, head_dim=32),
    "windows": lambda: Qwen3Config(
        **SHAPE, head_dim=16, use_sliding_window=True, sliding_window=8, max_window_layers=1
    ),
}


def made(name: str):
    torch.manual_seed(3)
    config = CONFIGS[name]()
    kind = Qwen3ForCausalLM if isinstance(config, Qwen3Config) else LlamaForCausalLM
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases and norms of a new model are all alike.
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def logits_of(backend: Backend) -> torch.Tensor:
    """Two sessions: prompts in windows, then a step of both."""
    contexts = [Context(backend.shape) for _ in range(2)]
    for context in contexts:
        context.resize(256)
    one, two = contexts
    rows = [
        backend.run([Segment(one, list(range(40)), True), Segment(two, [7, 8, 9], False)]),
        backend.run([Segment(one, [5], True), Segment(two, list(range(20)), True)]),
        backend.run([Segment(one, [6], True), Segment(two, [3], True)]),
    ]
    return torch.cat(rows)


@pytest.mark.parametrize("name", CONFIGS)
def test_lean_logits_are_those_of_the_models_own_forward(name):
    assert is_plain(made(name))
    plain, lean = logits_of(Backend(made(name))), logits_of(Backend(made(name), is_lean=True))
    assert torch.allclose(lean, plain, atol=1e-4, rtol=1e-4)
    assert plain.std() > 0.1, "logits that are all alike would prove nothing"


def test_bf16_weights_are_packed_and_no_copy_is_left():
    backend = Backend(made("llama").bfloat16(), is_lean=True)
    kinds = {type(module).__name__ for module in backend.model.model.modules()}
    assert "Linear" not in kinds
    assert isinstance(backend._lean._layers[0].qkv, PackedLinear)
    plain = logits_of(Backend(made("llama").bfloat16()))
    assert torch.allclose(logits_of(backend).float(), plain.float(), atol=0.15)


def test_both_paths_have_names_of_their_own():
    assert Backend(made("llama")).fingerprint != Backend(made("llama"), is_lean=True).fingerprint


def test_a_model_of_another_family_is_not_plain(tiny):
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    assert not is_plain(GPTNeoXForCausalLM(config))
    assert is_plain(tiny.backend.model)
