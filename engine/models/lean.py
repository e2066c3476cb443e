"""Plain decoders (Llama, Qwen3) without what their own forward does around the arithmetic.

The same operations on the same weights, with less between them: q, k and v are one product, gate
and up another, and nothing is asked of a configuration in a step. A step of one stream is mostly
such overhead: on two cores it takes a third less time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from engine.models.linear import PackedLinear, can_pack

# Whose layers are known to be nothing but what `_Layer` computes.
FAMILIES = ("llama", "qwen3")

Attend = Callable[..., tuple[torch.Tensor, None]]


@dataclass(frozen=True)
class _Layer:
    attention: nn.Module
    norm: nn.Module
    qkv: nn.Module
    out: nn.Module
    second_norm: nn.Module
    gate_up: nn.Module
    down: nn.Module


class Lean:
    """Runs the layers of one model; the model's own layers lose their weights to it."""

    def __init__(self, model: PreTrainedModel, attend: Attend, max_rows: int | None) -> None:
        decoder: Any = model.model
        config = model.config
        self._attend = attend
        self._embed = decoder.embed_tokens
        self._rotary = decoder.rotary_emb
        self._norm = decoder.norm
        head: Any = model
        self._head = head.lm_head
        self._heads: int = config.num_attention_heads
        self._kv_heads: int = config.num_key_value_heads
        self._activate = decoder.layers[0].mlp.act_fn
        self._layers = [_taken(layer, max_rows) for layer in decoder.layers]

    def __call__(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        sampled: torch.Tensor,
        step: object,
    ) -> torch.Tensor:
        """Return logits [sampled, vocabulary] of tokens [1, rows] at positions [1, rows]."""
        hidden = self._embed(tokens)
        cos, sin = self._rotary(hidden, position_ids=positions)
        # [rows, 1, head_dim], alike for all heads.
        cos, sin = cos[0, :, None], sin[0, :, None]
        hidden = hidden[0]
        for layer in self._layers:
            hidden = hidden + self._attention(layer, _normed(layer.norm, hidden), cos, sin, step)
            gate, up = layer.gate_up(_normed(layer.second_norm, hidden)).chunk(2, dim=-1)
            hidden = hidden + layer.down(self._activate(gate) * up)
        logits: torch.Tensor = self._head(_normed(self._norm, hidden[sampled]))
        return logits

    def _attention(
        self,
        layer: _Layer,
        rows: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        step: object,
    ) -> torch.Tensor:
        attention: Any = layer.attention
        both = self._heads + self._kv_heads
        parts = layer.qkv(rows).view(len(rows), both + self._kv_heads, -1)
        turned, value = parts[:, :both], parts[:, both:]
        if hasattr(attention, "q_norm"):
            query = _normed(attention.q_norm, turned[:, : self._heads])
            turned = torch.cat([query, _normed(attention.k_norm, turned[:, self._heads :])], dim=1)
        turned = turned * cos + _half_turned(turned) * sin
        turned = turned.transpose(0, 1)[None]
        attended, _ = self._attend(
            attention,
            turned[:, : self._heads],
            turned[:, self._heads :],
            value.transpose(0, 1)[None],
            None,
            scaling=attention.scaling,
            sliding_window=getattr(attention, "sliding_window", None),
            consilium_step=step,
        )
        result: torch.Tensor = layer.out(attended.reshape(len(rows), -1))
        return result


def is_plain(model: PreTrainedModel) -> bool:
    """Whether a model is one of those that are computed exactly so."""
    config = model.config
    return config.model_type in FAMILIES and not config.to_dict().get("pretraining_tp", 1) > 1


def _taken(layer: Any, max_rows: int | None) -> _Layer:
    """Take a layer's weights, joined where they have the same input, and leave none behind."""
    attention, mlp = layer.self_attn, layer.mlp
    taken = _Layer(
        attention=attention,
        norm=layer.input_layernorm,
        qkv=_packed(_joined(attention.q_proj, attention.k_proj, attention.v_proj), max_rows),
        out=_packed(attention.o_proj, max_rows),
        second_norm=layer.post_attention_layernorm,
        gate_up=_packed(_joined(mlp.gate_proj, mlp.up_proj), max_rows),
        down=_packed(mlp.down_proj, max_rows),
    )
    for parent in (attention, mlp):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                delattr(parent, name)
    return taken


def _joined(*linears: nn.Linear) -> nn.Linear:
    first = linears[0]
    width = sum(one.out_features for one in linears)
    has_bias = first.bias is not None
    joined = nn.Linear(first.in_features, width, bias=has_bias, device="meta")
    joined.weight = nn.Parameter(torch.cat([one.weight for one in linears]), requires_grad=False)
    if has_bias:
        joined.bias = nn.Parameter(torch.cat([one.bias for one in linears]), requires_grad=False)
    return joined


def _packed(linear: nn.Linear, max_rows: int | None) -> nn.Module:
    return PackedLinear(linear, max_rows) if can_pack(linear) else linear


def _normed(norm: Any, rows: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(rows, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _half_turned(rows: torch.Tensor) -> torch.Tensor:
    """Return [-second half, first half] along the last axis, as rotary embeddings need it."""
    first, second = rows.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)
