"""What a layer is refused for, and where each one's keys and values lie."""

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
)

from engine.config import UnsupportedModel
from engine.kv.context import LayerGroup
from engine.models.layers import kv_shape, refuse_unsupported
from tests.engine.conftest import tiny_model

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "pad_token_id": 0,
}


def gemma4(**settings) -> Gemma4ForCausalLM:
    settings = {"hidden_size_per_layer_input": 0, "global_head_dim": 16, **settings}
    return Gemma4ForCausalLM(Gemma4TextConfig(**SMALL, **settings))


def test_layers_that_are_alike_lie_in_one_tensor():
    shape = kv_shape(tiny_model("llama", 64))
    assert shape.groups == (LayerGroup(3, 2, 16),)
    assert shape.places == ((0, 0), (0, 1), (0, 2))
    assert shape.token_bytes == 3 * 2 * 2 * 16 * 4


def test_layers_of_other_widths_lie_apart_and_shared_ones_are_kept_once():
    shape = kv_shape(tiny_model("gemma4", 64))
    assert shape.groups == (LayerGroup(1, 2, 16), LayerGroup(1, 2, 32))
    assert shape.places == ((0, 0), (1, 0), (0, 0), (1, 0))


def test_layers_of_other_heads_lie_apart():
    shape = kv_shape(tiny_model("gemma4_moe", 64))
    assert shape.groups == (LayerGroup(2, 2, 16), LayerGroup(2, 1, 32))
    assert shape.places == ((0, 0), (1, 0), (0, 1), (1, 1))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: gemma4(use_bidirectional_attention="all"), "what comes later"),
        (lambda: gemma4(num_kv_shared_layers=2), "shares KV"),
        (lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL)), "caps its attention scores"),
        (
            lambda: GptOssForCausalLM(
                GptOssConfig(**SMALL, num_local_experts=2, num_experts_per_tok=1)
            ),
            "sinks",
        ),
    ],
    ids=["encoder", "all-shared", "softcap", "sinks"],
)
def test_E79_what_would_be_computed_otherwise_is_refused_in_words(model, words):
    with torch.device("meta"):
        built = model()
    with pytest.raises(UnsupportedModel, match=words):
        refuse_unsupported(built)
