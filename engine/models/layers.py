"""A model's layers: which of them this engine cannot run, and how their keys and values lie."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from engine.config import UnsupportedModel
from engine.kv.context import KVShape, LayerGroup
from engine.models.recurrent import PROVEN, RECURRENT, adopt, attending
from engine.models.vision import text_dtype
from engine.models.weights import home_of

# Layers whose state is not a plain list of keys and values: a crop cannot undo them. What proven
# families have of them goes back to a checkpoint.
REFUSED_LAYERS = {RECURRENT, "mamba", "recurrent", "conv", "chunked_attention"}
# Families proven to read, in their last layers, what an earlier layer of the same type wrote.
SHARING = ("gemma4_text",)


def refuse_unsupported(model: PreTrainedModel) -> None:
    """Raise `UnsupportedModel` for what would be computed differently here."""
    config: Any = model.config.get_text_config(decoder=True)
    family = config.model_type
    kinds = set(getattr(config, "layer_types", None) or ())
    is_proven = family in PROVEN
    if refused := (kinds & REFUSED_LAYERS) - ({RECURRENT} if is_proven else set()):
        raise UnsupportedModel(
            f"{family} has {', '.join(sorted(refused))} layers, which this engine "
            "cannot roll back to what was delivered"
        )
    if not attending(config):
        raise UnsupportedModel(f"{family} has no attention layers at all")
    shared = getattr(config, "num_kv_shared_layers", 0) or 0
    if shared and (family not in SHARING or shared >= config.num_hidden_layers):
        raise UnsupportedModel(f"{family} shares KV between layers")
    if getattr(config, "attn_logit_softcapping", None):
        raise UnsupportedModel(f"{family} caps its attention scores, which this engine does not")
    if any(name.endswith(".sinks") for name, _ in model.named_parameters()):
        raise UnsupportedModel(f"{family} has attention sinks, which this engine does not compute")
    if getattr(config, "use_bidirectional_attention", None) not in (None, False, "vision"):
        raise UnsupportedModel(f"{family} lets text see what comes later, so it cannot be streamed")
    # A proven family may use the interface without saying so.
    if not (is_proven or getattr(model, "_supports_attention_backend", False)):
        raise UnsupportedModel(f"{family} does not use the attention interface")


def kv_shape(model: PreTrainedModel) -> KVShape:
    """Return how a token's keys and values lie in the layers of a model that is supported."""
    config: Any = model.config.get_text_config(decoder=True)
    own = config.num_hidden_layers - (getattr(config, "num_kv_shared_layers", 0) or 0)
    layouts = {layer: _layout(config, layer) for layer in attending(config) if layer < own}
    kinds = list(dict.fromkeys(layouts.values()))
    counts = [0] * len(kinds)
    places: list[tuple[int, int] | None] = [None] * own
    for layer, layout in layouts.items():
        group = kinds.index(layout)
        places[layer] = group, counts[group]
        counts[group] += 1
    types = list(getattr(config, "layer_types", None) or ())
    # These get the keys and values of the layer they share with, and write the same bits again.
    for layer in range(own, config.num_hidden_layers):
        writer = max(n for n in range(own) if types[n] == types[layer])
        places.append(places[writer])
    return KVShape(
        groups=tuple(LayerGroup(count, *kind) for count, kind in zip(counts, kinds, strict=True)),
        places=tuple(places),
        dtype=text_dtype(model),
        device=home_of(model),
        state=adopt(model),
    )


def _layout(config: Any, layer: int) -> tuple[int, int]:
    """Return the KV heads of a layer and their width."""
    if getattr(config, "is_heterogeneous", False):
        config = config.per_layer_config[layer]
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return heads, width
