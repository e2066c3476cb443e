"""Packed layers compute bit for bit what plain ones do, and only where they can."""

import pytest
import torch
from torch import nn

from engine.models.linear import PackedLinear, pack

CAN_PACK = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def stack(dtype):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 96, bias=False), nn.Sequential(nn.Linear(96, 33))).to(dtype)


@pytest.mark.skipif(not CAN_PACK, reason="this CPU has no bf16 matrix kernels")
@pytest.mark.parametrize("rows", [1, 2, 8, 32, 128])
@torch.inference_mode()
def test_packed_equals_plain_bit_for_bit(rows):
    plain, packed = stack(torch.bfloat16), stack(torch.bfloat16)
    assert pack(packed) == 2
    assert isinstance(packed[0], PackedLinear)
    data = torch.randn(1, rows, 64, dtype=torch.bfloat16)
    assert torch.equal(packed(data), plain(data))
    # Gemma's vision tower asks for it.
    assert packed[0].weight.dtype is torch.bfloat16 and "0.weight" not in packed.state_dict()


def test_layers_of_another_precision_stay_as_they_are():
    model = stack(torch.float32)
    assert pack(model) == 0
    assert type(model[0]) is nn.Linear
