"""Linear layers whose weights lie in the layout the CPU's matrix units read."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import nn


class PackedLinear(nn.Module):
    """A bf16 linear layer for inference; computes bit for bit what `nn.Linear` does.

    A plain layer brings its weight into this layout again at every call: with eight sessions on
    two shared cores a step took 115 ms packed and 410 ms plain. With `max_rows` it computes no
    more rows at once: then what a row becomes does not depend on how many there are.
    """

    def __init__(self, linear: nn.Linear, max_rows: int | None = None) -> None:
        super().__init__()
        self._max_rows = max_rows
        # The layout serves any number of rows; 1 only says what to expect most.
        self._weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), 1)
        self._bias = linear.bias
        # Empty: some vision towers ask a layer's weight for its dtype, and for nothing else.
        self.weight = torch.empty(0, dtype=linear.weight.dtype)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return `rows` [..., in] as [..., out]."""
        if self._max_rows is None or rows.numel() <= self._max_rows * rows.shape[-1]:
            return self._compute(rows)
        flat = rows.reshape(-1, rows.shape[-1])
        out = torch.cat([self._compute(part) for part in torch.split(flat, self._max_rows)])
        return out.reshape(*rows.shape[:-1], -1)

    def _compute(self, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._weight, self._bias, "none", [], ""
        )
        return out


def can_pack(linear: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer is a plain bf16 one on a CPU that has the kernels."""
    # A subclass may compute something else than its weight says.
    if type(linear) is not nn.Linear:
        return False
    if not (linear.weight.dtype is torch.bfloat16 and linear.weight.is_cpu):
        return False
    has_kernels = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(has_kernels and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def pack(model: nn.Module, max_rows: int | None = None) -> int:
    """Replace the linear layers of a bf16 model on a CPU that can; return how many."""
    packed = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if can_pack(child):
                setattr(parent, name, PackedLinear(child, max_rows))
                packed += 1
    return packed
