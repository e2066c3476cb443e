"""Models that compute other numbers have other names."""

import torch

from engine.models.backend import Backend
from engine.models.fingerprint import fingerprint
from tests.engine.conftest import tiny_model


def name_of(model, *arithmetic):
    return fingerprint(model, arithmetic)


def test_the_same_weights_have_the_same_name_wherever_they_lay():
    one, other = tiny_model("llama", 300), tiny_model("llama", 300)
    other.config._name_or_path = "/somewhere/else"
    assert name_of(one) == name_of(other) and len(name_of(one)) == 32


def test_one_bit_of_one_weight_is_another_model():
    one, other = tiny_model("llama", 300), tiny_model("llama", 300)
    with torch.no_grad():
        weight = other.model.layers[2].self_attn.v_proj.weight
        weight.view(torch.int32)[0, 0] ^= 1
    assert name_of(one) != name_of(other)


def test_settings_that_change_positions_precision_or_order_change_the_name():
    one, other = tiny_model("llama", 300), tiny_model("llama", 300)
    other.config.rms_norm_eps *= 2
    names = {name_of(one), name_of(other), name_of(one, True)}
    names |= {name_of(one.to(torch.bfloat16)), name_of(tiny_model("qwen3", 300))}
    assert len(names) == 5


def test_a_backend_that_stores_nothing_reads_no_weights_for_a_name():
    assert Backend(tiny_model("llama", 300), is_named=False).fingerprint == b""
    assert Backend(tiny_model("llama", 300)).fingerprint == name_of(
        tiny_model("llama", 300), False, False
    )
