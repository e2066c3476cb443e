"""A model's eyes: its processor and vision tower, from a file to a `Picture`."""

from __future__ import annotations

import inspect
from typing import Any

import torch
import transformers
from blake3 import blake3
from jinja2 import TemplateError
from PIL import Image
from transformers import PreTrainedModel, ProcessorMixin
from transformers.models.auto import processing_auto
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from engine.config import UnsupportedModel
from engine.models.ears import Ears, takes_sounds
from engine.models.layout import Features, Picture, Sound
from engine.models.vision import vision_parts

# Families whose answers about pictures are proven to be those of `generate` (tests/engine).
PROVEN = (
    "gemma4",
    "idefics3",
    "qwen2_5_omni_thinker",
    "qwen2_5_vl",
    "qwen3_5",
    "qwen3_vl",
    "smolvlm",
)

# Outputs of a processor that are no input of a vision tower.
_TEXT_OUTPUTS = {"input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids"}


def takes_pictures(config: transformers.PreTrainedConfig) -> bool:
    """Whether a model of this configuration reads pixels; raises `UnsupportedModel`."""
    family = config.model_type
    if family not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return False
    if family not in PROVEN:
        raise UnsupportedModel(
            f"{family} models take pictures, but are not proven to answer exactly here; "
            f"proven are {', '.join(PROVEN)}"
        )
    return True


class Eyes:
    """Prepares pictures and computes their features. Not thread-safe: one thread calls it."""

    def __init__(self, model: PreTrainedModel, processor: Any) -> None:
        self._model = model
        self.processor = processor
        self.ears = Ears(model, processor) if takes_sounds(model.config) else None
        self.placeholder: int = model.config.image_token_id
        # Each stands once in a template's text for what is shown or played.
        self.placeholders = frozenset({self.placeholder})
        if self.ears is not None:
            self.placeholders |= {self.ears.placeholder}
        # The text that a template puts where a picture stands.
        self.mark: str = processor.image_token
        text = model.config.get_text_config(decoder=True)
        # Whether the tokens of a picture see each other, and not only those before them.
        self.sees_whole: bool = getattr(text, "use_bidirectional_attention", None) == "vision"
        self._has_positions = hasattr(model.model, "get_rope_index")
        self._settings = repr(sorted(processor.image_processor.to_dict().items())).encode()

    @classmethod
    def load(cls, folder: str, model: PreTrainedModel) -> Eyes:
        """Load the processor that belongs to `model`; raises `UnsupportedModel`."""
        names: dict[str, str] = processing_auto.PROCESSOR_MAPPING_NAMES  # type: ignore[attr-defined]
        name = names[model.config.model_type.removesuffix("_thinker")]
        kind = _still(getattr(transformers, name), takes_sounds(model.config))
        eyes = cls(model, kind.from_pretrained(folder))
        if eyes._shown("image").count(eyes.mark) != 1:
            raise UnsupportedModel(f"the chat template of {folder} has no place for pictures")
        if eyes.ears is not None and eyes._shown("audio").count(eyes.ears.mark) != 1:
            raise UnsupportedModel(f"the chat template of {folder} has no place for recordings")
        return eyes

    def render(self, chat: list[dict[str, Any]], *, asks: bool) -> str:
        """Render messages whose content is a list of parts; `asks` ends with the model's turn."""
        tokenizer = self.processor.tokenizer
        text = tokenizer.apply_chat_template(
            chat,
            chat_template=self.processor.chat_template or tokenizer.chat_template,
            tokenize=False,
            add_generation_prompt=asks,
        )
        assert isinstance(text, str)
        return text

    def _shown(self, medium: str) -> str:
        parts = [{"type": medium}, {"type": "text", "text": "x"}]
        try:
            return self.render([{"role": "user", "content": parts}], asks=True)
        # A processor without any template says so in its own way.
        except (TemplateError, ValueError):
            return ""

    @torch.inference_mode()
    def look(self, path: str) -> Picture:
        """Read a picture that perception made; raises `OSError` when it cannot be read."""
        with Image.open(path) as file:
            pixels = file.convert("RGB")
        digest = blake3(self._settings)
        digest.update(f"{pixels.width}x{pixels.height}".encode())
        digest.update(pixels.tobytes())
        made = self.processor(
            images=[pixels], text=[self.mark], add_special_tokens=False, return_tensors="pt"
        )
        inputs = {name: value for name, value in made.items() if name not in _TEXT_OUTPUTS}
        device = next(vision_parts(self._model)[0].parameters()).device
        seen = self._model.model.get_image_features(
            **{name: value.to(device) for name, value in inputs.items()}, return_dict=True
        )
        deep = getattr(seen, "deepstack_features", None) or ()
        return Picture(
            digest=digest.digest(length=16),
            tokens=tuple(made["input_ids"][0].tolist()),
            placeholder=self.placeholder,
            features=Features(
                self._for_text(seen.pooler_output), tuple(self._for_text(one) for one in deep)
            ),
            grid=inputs.get("image_grid_thw"),
        )

    def _for_text(self, features: Any) -> torch.Tensor:
        """Return one picture's features where and as exactly as the language model computes."""
        embedding: Any = self._model.get_input_embeddings().weight
        return _joined(features).to(embedding.device, embedding.dtype)

    def positions(
        self, tokens: list[int], pictures: list[Picture]
    ) -> tuple[torch.Tensor | None, int]:
        """Return the positions of a prompt [axes, tokens] and what comes on top behind it.

        None where pictures do not bend positions. Computed for the prompt as a whole and from
        nothing that the model object remembers of another one.
        """
        if not self._has_positions or not pictures:
            return None, 0
        ids = torch.tensor([tokens])
        grids = [p.grid for p in pictures if p.grid is not None]
        index = self._model.model.get_rope_index
        if self.ears is None:
            about = {"mm_token_type_ids": (ids == self.placeholder).int()}
        else:
            frames = [p.frames for p in pictures if isinstance(p, Sound)]
            about = {"attention_mask": torch.ones_like(ids), "audio_seqlens": torch.tensor(frames)}
        found, delta = index(ids, image_grid_thw=torch.cat(grids) if grids else None, **about)
        return found[:, 0], int(delta[0])


def _joined(features: Any) -> torch.Tensor:
    """Features of one picture, however the family parts them, as [tokens, hidden size]."""
    whole = features if isinstance(features, torch.Tensor) else torch.cat(list(features))
    return whole.reshape(-1, whole.shape[-1])


def _still(processor: Any, hears: bool) -> Any:
    """Return the processor class without its video part, which needs torchvision to exist.

    Without that for sound, too, unless it `hears`.
    """
    takes = inspect.signature(processor.__init__).parameters
    names: list[str] = processor.get_attributes()

    class Parts(ProcessorMixin):
        # Gets what the family's own constructor passes on, which has a part for every name.
        def __init__(self, *parts: object, chat_template: str | None, **named: object) -> None:
            given = {**dict(zip(names, parts, strict=False)), **named}
            kept = {name: given.pop(name) for name in self.get_attributes()}  # type: ignore[no-untyped-call]
            super().__init__(**kept, chat_template=chat_template)  # type: ignore[no-untyped-call]
            for name in given:
                setattr(self, name, None)

    class Still(processor, Parts):  # type: ignore[misc]
        # `from_pretrained` reads from this signature what it may pass; parts come by their place.
        def __init__(
            self,
            image_processor: object,
            tokenizer: object,
            feature_extractor: object = None,
            image_seq_len: int | None = None,
            chat_template: str | None = None,
        ) -> None:
            settings: dict[str, object] = {name: None for name in names if name in takes}
            settings |= {"image_processor": image_processor, "tokenizer": tokenizer}
            if hears:
                settings["feature_extractor"] = feature_extractor
            if image_seq_len is not None and "image_seq_len" in takes:
                settings["image_seq_len"] = image_seq_len
            super().__init__(**settings, chat_template=chat_template)

        @classmethod
        def get_attributes(cls) -> list[str]:
            return ["image_processor", "tokenizer", *(["feature_extractor"] if hears else [])]

    return Still
