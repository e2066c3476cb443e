"""Recurrent layers in the packed step: each session's rows go through its own state alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen3_5

from engine.kv.checkpoints import State, StateShape
from engine.kv.context import Context

RECURRENT = "linear_attention"
# Families whose answers are proven to be those of `generate` (tests/engine).
PROVEN = ("qwen3_5_text",)


@dataclass(frozen=True)
class Piece:
    """Rows `[start, stop)` of a step, of one session; `copy` gets its state from before them."""

    start: int
    stop: int
    live: State
    copy: State | None


@dataclass(frozen=True)
class Passage:
    """What the recurrent layers of one step share.

    With `is_stepwise` they take token by token, so that no bit depends on where a window ends; a
    window of 512 at once takes a quarter of that (47 ms a layer instead of 190).
    """

    pieces: list[Piece]
    is_stepwise: bool

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, Context]], *, is_stepwise: bool) -> Passage:
        """Cut the rows of a step where states are to be copied."""
        pieces = []
        for start, stop, context in rows:
            states = context.states
            assert states is not None and states.live is not None, "given room before it is run"
            past = context.length
            copies = {
                at - past + start: copy for at, copy in states.pass_over(past, past + stop - start)
            }
            cuts = sorted({start, *copies, stop})
            pieces += [
                Piece(begin, end, states.live, copies.get(begin))
                for begin, end in zip(cuts, cuts[1:], strict=False)
            ]
        return cls(pieces, is_stepwise)


def attending(config: PreTrainedConfig) -> list[int]:
    """Return which layers of a text model have keys and values."""
    kinds = getattr(config, "layer_types", None) if config.model_type in PROVEN else None
    layers = range(config.num_hidden_layers)
    return [layer for layer in layers if kinds is None or kinds[layer] != RECURRENT]


def adopt(model: PreTrainedModel) -> StateShape | None:
    """Let a proven model's recurrent layers use their sessions' states; None if it has none."""
    if model.config.get_text_config(decoder=True).model_type not in PROVEN:
        return None
    layers = [m for m in model.modules() if isinstance(m, qwen3_5.Qwen3_5GatedDeltaNet)]
    if not layers:
        return None
    for row, layer in enumerate(layers):
        layer.forward = partial(_forward, layer, row)
    first: Any = layers[0]
    return StateShape(
        layers=len(layers),
        heads=first.num_v_heads,
        key_dim=first.head_k_dim,
        value_dim=first.head_v_dim,
        # Before a token stand all but the last of the inputs that the filter takes for it.
        taps=first.conv_kernel_size - 1,
        channels=first.conv_dim,
        dtype=model.dtype,
        device=next(model.parameters()).device,
    )


def _forward(
    layer: Any,
    row: int,
    hidden_states: torch.Tensor,
    consilium_states: Passage | None = None,
    **unused: object,
) -> torch.Tensor:
    """Do as `Qwen3_5GatedDeltaNet.forward` for [1, rows, hidden size] of several sessions."""
    assert consilium_states is not None, "the packed step is the only way to run this model"
    mixed = layer.in_proj_qkv(hidden_states)[0]
    gate = layer.in_proj_z(hidden_states).reshape(-1, layer.head_v_dim)
    beta = layer.in_proj_b(hidden_states).sigmoid()
    steps = _softplus(layer.in_proj_a(hidden_states).float() + layer.dt_bias)
    decay = -layer.A_log.float().exp() * steps
    out = mixed.new_empty(1, len(mixed), layer.num_v_heads, layer.head_v_dim)
    for piece in consilium_states.pieces:
        part = slice(piece.start, piece.stop)
        inputs, matrices = piece.live.inputs[row], piece.live.matrices[row]
        if piece.copy is not None:
            piece.copy.inputs[row].copy_(inputs)
            piece.copy.matrices[row].copy_(matrices)
        sizes = [layer.key_dim, layer.key_dim, layer.value_dim]
        filtered = _filtered(layer, mixed[part], inputs)[None]
        query, key, value = torch.split(filtered, sizes, dim=-1)
        count = piece.stop - piece.start
        is_single = consilium_states.is_stepwise or count == 1
        rule = (
            qwen3_5.torch_recurrent_gated_delta_rule
            if is_single
            else qwen3_5.torch_chunk_gated_delta_rule
        )
        out[:, part], last = rule(
            query.reshape(1, count, -1, layer.head_k_dim),
            key.reshape(1, count, -1, layer.head_k_dim),
            value.reshape(1, count, -1, layer.head_v_dim),
            g=decay[:, part],
            beta=beta[:, part],
            initial_state=matrices[None],
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        matrices.copy_(last[0])
    normed = layer.norm(out.reshape(-1, layer.head_v_dim), gate)
    result: torch.Tensor = layer.out_proj(normed.reshape(1, len(mixed), -1))
    return result


def _softplus(values: torch.Tensor) -> torch.Tensor:
    """Do as torch's own, whose last bits depend on how many values there are."""
    return torch.where(values > 20, values, values.clamp(max=20).exp().log1p())


def _filtered(layer: Any, rows: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """Convolve rows [rows, channels] with those `before` them, which becomes the last of both.

    Tap by tap, because a row of the library's convolution depends on how many there are.
    """
    seen = torch.cat([before, rows])
    before.copy_(seen[len(rows) :])
    weight = layer.conv1d.weight.squeeze(1).float()
    made = torch.zeros_like(rows, dtype=torch.float32)
    for tap in range(weight.shape[1]):
        made += seen[tap : tap + len(rows)].float() * weight[:, tap]
    if layer.conv1d.bias is not None:
        made += layer.conv1d.bias.float()
    filtered: torch.Tensor = ACT2FN[layer.activation](made.to(rows.dtype))
    return filtered
