"""The parts of a model that encode pictures, and where they lie."""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

from engine.config import UnsupportedModel

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# How families call the parts that make features of pixels.
_NAMES = (
    "visual",
    "vision_model",
    "vision_tower",
    "connector",
    "multi_modal_projector",
    "embed_vision",
)

# Their own forward brings features to the precision of the vision part.
_ONE_PRECISION = ("idefics3", "smolvlm")


def place_vision(model: PreTrainedModel, device: str, dtype: str) -> None:
    """Give what encodes pictures a device and precision of its own; "" leaves either as it is.

    Raises `UnsupportedModel`.
    """
    family = model.config.model_type
    if dtype and family in _ONE_PRECISION and DTYPES[dtype] is not text_dtype(model):
        raise UnsupportedModel(f"{family} models compute pictures and text in one precision")
    for part in vision_parts(model):
        part.to(device=device or None, dtype=DTYPES[dtype] if dtype else None)


def vision_parts(model: PreTrainedModel) -> list[nn.Module]:
    """Return the parts of a model that make features of pixels."""
    inner = model.model
    return [getattr(inner, name) for name in _NAMES if hasattr(inner, name)]


def text_dtype(model: PreTrainedModel) -> torch.dtype:
    """Return the precision in which text is computed, whatever that of the vision part."""
    dtype: torch.dtype = model.get_input_embeddings().weight.dtype  # type: ignore[assignment]
    return dtype
