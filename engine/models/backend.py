"""What the loop needs of a model: one packed forward step over parts of several sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling

from engine.kv.context import GRAIN, Context
from engine.models.ears import takes_sounds
from engine.models.eyes import takes_pictures
from engine.models.fingerprint import fingerprint
from engine.models.layers import kv_shape, refuse_unsupported
from engine.models.layout import Features, Layout
from engine.models.lean import Lean, is_plain
from engine.models.linear import pack
from engine.models.recurrent import Passage
from engine.models.vision import place_vision
from engine.models.weights import home_of, is_whole, load_network

ATTENTION = "consilium_segments"

# Sizes that make bf16 on a CPU independent of batch mates and windows; see `determinism`.
LINEAR_ROWS = 32
KEY_ROWS = 32
QUERY_ROWS = 8

# Runs of tokens that see each other, later ones too (`Layout.blocks`).
Blocks = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Segment:
    """The next tokens of one session in a step: `wants_logits` when its last one is sampled.

    `layout` is that of the prompt which these tokens belong to or go on from.
    """

    context: Context
    tokens: list[int]
    wants_logits: bool
    layout: Layout = field(default_factory=Layout)


class StepAbandoned(Exception):
    """A step was given up between two layers; its contexts are as they were before it."""


class Backend:
    """A causal or image-text transformers model. Not thread-safe: the loop alone calls it."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        is_deterministic: bool = False,
        is_named: bool = True,
        is_lean: bool = False,
    ) -> None:
        # Names what is stored of the model; empty when nothing of it will be.
        kind = (is_deterministic, is_lean)
        self.fingerprint = fingerprint(model, kind) if is_named else b""
        # Whether it tries; set to False when the check on this machine failed.
        self.is_deterministic = is_deterministic
        refuse_unsupported(model)
        AttentionInterface.register(ATTENTION, _attend)
        AttentionMaskInterface.register(ATTENTION, _no_mask)
        self.takes_pictures = takes_pictures(model.config)
        # The families that hear compute logits of all rows of a step when they are asked for any.
        self._takes_sounds = takes_sounds(model.config)
        # A vision tower attends within one picture, by the library's own implementation.
        model.set_attn_implementation(
            {"text_config": ATTENTION} if self.takes_pictures else ATTENTION
        )
        self.model: PreTrainedModel = model.eval()  # type: ignore[no-untyped-call]
        # A model that says a picture's token shows no picture, and the next prompt would lack one.
        names = (
            ("image_token_id", "video_token_id", "audio_token_id") if self.takes_pictures else ()
        )
        if self._takes_sounds:
            # Its positions are counted by these marks: one without anything behind it breaks them.
            names = (*names, "vision_start_token_id", "audio_start_token_id")
        unsaid = [getattr(model.config, name, None) for name in names]
        self._unsaid = [token for token in unsaid if token is not None]
        config = model.config.get_text_config(decoder=True)
        self.device = home_of(model)
        self.max_context: int = config.max_position_embeddings
        self.vocabulary: int = config.vocab_size
        self.shape = kv_shape(model)
        # Takes the layers' weights with it.
        rows = LINEAR_ROWS if is_deterministic else None
        self._lean = Lean(model, _attend, rows) if is_lean else None

    @classmethod
    def load(
        cls,
        model: str,
        dtype: str,
        device: str,
        *,
        is_deterministic: bool = False,
        is_named: bool = False,
        memory: dict[str, int] | None = None,
        vision_device: str = "",
        vision_dtype: str = "",
    ) -> Backend:
        """Load a folder or hub id. Raises `UnsupportedModel`, or `OSError` when it is not there.

        Without `is_named` it has no fingerprint, for which all weights are read once.
        """
        network = load_network(model, dtype, device, memory)
        place_vision(network, vision_device, vision_dtype)
        # Named before the weights are packed: then they are no plain tensors any more.
        # What lies on disk cannot be read for a name, and what is moved about cannot be packed.
        whole = is_whole(network)
        backend = cls(
            network,
            is_deterministic=is_deterministic,
            is_named=is_named and whole,
            is_lean=whole and is_plain(network),
        )
        if whole:
            pack(backend.model, LINEAR_ROWS if is_deterministic else None)
        return backend

    @torch.inference_mode()
    def run(
        self, segments: list[Segment], is_unwanted: Callable[[], bool] = lambda: False
    ) -> torch.Tensor:
        """Compute all segments in one flattened forward and append them to their contexts.

        Returns logits [segments that want them, vocabulary], in order. Contexts must have room.
        Raises `StepAbandoned` when `is_unwanted` says so at the attention of any layer. A model
        with recurrent layers is not asked: their states change in place.
        """
        tokens = [token for segment in segments for token in segment.tokens]
        positions: list[torch.Tensor] = []
        pictures: list[Features] = []
        sounds: list[Features] = []
        sampled: list[int] = []
        rows = 0
        for segment in segments:
            past, rows = segment.context.length, rows + len(segment.tokens)
            positions.append(segment.layout.positions_of(past, past + len(segment.tokens)))
            pictures += segment.layout.features_of(past, past + len(segment.tokens))
            sounds += segment.layout.sounds_of(past, past + len(segment.tokens))
            if segment.wants_logits:
                sampled.append(rows - 1)
        # An empty index is not accepted everywhere; one spare row costs nothing.
        wanted = torch.tensor(sampled or [len(tokens) - 1], device=self.device)
        ids = torch.tensor([tokens], device=self.device)
        places = _side_by_side(positions).to(self.device)
        may_abandon = self.shape.state is None
        step = _Step(segments, self.is_deterministic, is_unwanted if may_abandon else lambda: False)
        logits: torch.Tensor
        if self._lean is not None:
            logits = self._lean(ids, places, wanted, step)
        else:
            inputs: dict[str, Any] = {
                "input_ids": ids,
                "position_ids": places,
                "use_cache": False,
                "consilium_step": step,
                **_encoded(pictures),
            }
            if self.shape.state is not None:
                rows_of = [(start, end, context) for start, end, context, _ in step.rows]
                passage = Passage.of(rows_of, is_stepwise=self.is_deterministic)
                inputs["consilium_states"] = passage
            if self._takes_sounds:
                made = self.model.model(**inputs, **self._heard(ids, sounds)).last_hidden_state
                logits = self.model.lm_head(made[0, wanted])
            else:
                logits = self.model(**inputs, logits_to_keep=wanted).logits[0]
        for segment in segments:
            segment.context.tokens.extend(segment.tokens)
        logits[:, self._unsaid] = torch.finfo(logits.dtype).min
        return logits if sampled else logits[:0]

    def _heard(self, ids: torch.Tensor, sounds: list[Features]) -> dict[str, torch.Tensor]:
        """Return the step's embeddings when recordings are among its tokens."""
        if not sounds:
            return {}
        words: torch.Tensor = self.model.get_input_embeddings()(ids)
        rows = torch.cat([sound.rows for sound in sounds]).to(words)
        places = (ids == self.model.config.audio_token_id)[..., None]
        return {"inputs_embeds": words.masked_scatter(places, rows)}

    def answers(self) -> bool:
        """Compute one token in a context of its own: whether the model works now."""
        context = Context(self.shape)
        context.resize(GRAIN)
        logits = self.run([Segment(context, [0], wants_logits=True)])
        return bool(torch.isfinite(logits).all())


class _Step:
    """What the attention layers of one step share: who owns which rows, and the masks."""

    def __init__(
        self,
        segments: list[Segment],
        is_padded: bool,
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.is_padded = is_padded
        self.is_unwanted = is_unwanted
        self.rows: list[tuple[int, int, Context, Blocks]] = []
        self._masks: dict[tuple[int, int, int | None, Blocks], torch.Tensor] = {}
        start = 0
        for segment in segments:
            end = start + len(segment.tokens)
            past = segment.context.length
            blocks = segment.layout.blocks_of(past, past + end - start)
            self.rows.append((start, end, segment.context, blocks))
            start = end

    def mask(
        self, new: int, total: int, window: int | None, blocks: Blocks, device: torch.device
    ) -> torch.Tensor | None:
        """Return which of `total` keys each of the last `new` queries sees; None: all of them."""
        windowed = window if window is not None and total > window else None
        if new == 1 and windowed is None:
            return None
        key = (new, total, windowed, blocks)
        if key not in self._masks:
            query = torch.arange(total - new, total, device=device)[:, None]
            keys = torch.arange(total, device=device)[None, :]
            seen = keys <= query
            _open(seen, blocks, total - new)
            if windowed is not None:
                seen &= keys > query - windowed
            self._masks[key] = seen
        return self._masks[key]

    def padded_mask(
        self,
        new: int,
        rows: int,
        total: int,
        wide: int,
        window: int | None,
        blocks: Blocks,
        device: torch.device,
    ) -> torch.Tensor:
        """Return the same for `rows` queries and `wide` keys, of which the last mean nothing."""
        key = (new, total, -1 if window is None else -window - 2, blocks)
        if key not in self._masks:
            query = torch.arange(total - new, total - new + rows, device=device)[:, None]
            keys = torch.arange(wide, device=device)[None, :]
            # Of a query that is there only to fill up anything may come, but no division by zero.
            seen = keys <= query.clamp(max=total - 1)
            _open(seen, blocks, total - new)
            if window is not None:
                seen &= keys > query - window
                seen[new:, 0] = True
            self._masks[key] = seen
        return self._masks[key]


def _open(seen: torch.Tensor, blocks: Blocks, past: int) -> None:
    """Let the tokens of a block see each other; `seen` begins at the query `past`."""
    for first, stop in blocks:
        seen[first - past : stop - past, first:stop] = True


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    consilium_step: _Step | None = None,
    **unused: object,
) -> tuple[torch.Tensor, None]:
    """Write each segment's keys and values, and attend over that session alone.

    `query` is [1, heads, rows, head_dim], `key` and `value` [1, kv heads, rows, head_dim];
    returns [1, rows, heads, head_dim].
    """
    assert consilium_step is not None, "the packed step is the only way to run this model"
    if consilium_step.is_unwanted():
        raise StepAbandoned
    layer: int = module.layer_idx  # type: ignore[assignment]
    attend = _attend_padded if consilium_step.is_padded else _attend_plain
    out = torch.empty_like(query)
    for start, end, context, blocks in consilium_step.rows:
        assert context.stores, "a context gets its room before it is run"
        past = context.length
        total = past + end - start
        keys, values = context.layer(layer)
        keys[:, past:total] = key[0, :, start:end]
        values[:, past:total] = value[0, :, start:end]
        # Of a model over several devices a layer may compute on another one than the KV lies on.
        out[:, :, start:end] = attend(
            query[:, :, start:end].to(keys.device),
            keys,
            values,
            total,
            consilium_step,
            sliding_window,
            # In the full layers of Gemma 4 pictures are read from left to right, too.
            blocks if sliding_window is not None else (),
            scaling,
        )
    return out.transpose(1, 2), None


def _attend_plain(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    total: int,
    step: _Step,
    window: int | None,
    blocks: Blocks,
    scale: float | None,
) -> torch.Tensor:
    """Attend from [1, heads, rows, head_dim] over the first `total` of [kv heads, …, head_dim]."""
    return F.scaled_dot_product_attention(
        query,
        keys[None, :, :total],
        values[None, :, :total],
        attn_mask=step.mask(query.shape[2], total, window, blocks, query.device),
        scale=scale,
        enable_gqa=query.shape[1] != keys.shape[0],
    )


def _attend_padded(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    total: int,
    step: _Step,
    window: int | None,
    blocks: Blocks,
    scale: float | None,
) -> torch.Tensor:
    """Do as `_attend_plain`, with sizes that are the same whatever stands beside a row.

    Keys are padded by masked ones to a multiple of 32, queries to a multiple of 8, a single one to
    2: the kernel then adds up in the same order.
    """
    rows = query.shape[2]
    padded = 2 if rows == 1 else -(-rows // QUERY_ROWS) * QUERY_ROWS
    wide = -(-total // KEY_ROWS) * KEY_ROWS
    out = F.scaled_dot_product_attention(
        F.pad(query, (0, 0, 0, padded - rows)),
        keys[None, :, :wide],
        values[None, :, :wide],
        attn_mask=step.padded_mask(rows, padded, total, wide, window, blocks, query.device),
        scale=scale,
        enable_gqa=query.shape[1] != keys.shape[0],
    )
    return out[:, :, :rows]


def _side_by_side(positions: list[torch.Tensor]) -> torch.Tensor:
    """Join positions [axes or 1, tokens] as [1, tokens] or, where any has axes, [axes, 1, tokens].

    A model with several axes takes positions of one alone for text on all of them.
    """
    axes = max(len(each) for each in positions)
    joined = torch.cat([each.expand(axes, -1) for each in positions], dim=1)
    return joined if axes == 1 else joined[:, None]


def _encoded(pictures: list[Features]) -> dict[str, Any]:
    """Return features as the model's own forward takes them, in the order of their tokens."""
    if not pictures:
        return {}
    output = BaseModelOutputWithPooling()
    output["pooler_output"] = tuple(p.rows for p in pictures)
    if pictures[0].deep:
        output["deepstack_features"] = list(zip(*(p.deep for p in pictures), strict=True))
    return {"mm_encoder_outputs": {"image": output}}


def _no_mask(*args: object, **kwargs: object) -> None:
    return None
