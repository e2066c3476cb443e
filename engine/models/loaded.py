"""A model with everything that belongs to it: tokenizer, template, end tokens, languages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.config import EngineConfig
from engine.embedded import read_manifest
from engine.models.backend import Backend
from engine.prompt import PromptWriter
from engine.text.detokenize import Detokenizer


@dataclass(frozen=True)
class LoadedModel:
    """What the loop needs; `languages` are those the model knows, None when it says nothing."""

    name: str
    backend: Backend
    tokenizer: PreTrainedTokenizerBase
    detokenizer: Detokenizer
    writer: PromptWriter
    end_tokens: frozenset[int]
    languages: tuple[str, ...] | None

    @classmethod
    def load(
        cls, config: EngineConfig, progress: Callable[[str], None] = lambda stage: None
    ) -> LoadedModel:
        """Load what `config` names; `progress` gets the name of each stage."""
        progress("weights")
        backend = Backend.load(config.model, config.dtype, config.device)
        progress("tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(config.model)
        manifest = read_manifest(Path(config.model))
        languages = config.languages or (manifest.languages if manifest else None)
        name = manifest.name if manifest else config.model
        return cls.assemble(name, backend, tokenizer, languages)

    @classmethod
    def assemble(
        cls,
        name: str,
        backend: Backend,
        tokenizer: PreTrainedTokenizerBase,
        languages: tuple[str, ...] | None,
    ) -> LoadedModel:
        """Put together a model that is in memory already."""
        return cls(
            name=name,
            backend=backend,
            tokenizer=tokenizer,
            detokenizer=Detokenizer(tokenizer),
            writer=PromptWriter(tokenizer),
            end_tokens=_end_tokens(backend, tokenizer),
            languages=languages,
        )


def _end_tokens(backend: Backend, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    generation = backend.model.generation_config
    stated = generation.eos_token_id if generation is not None else None
    if stated is None:
        stated = tokenizer.eos_token_id
    if stated is None:
        return frozenset()
    return frozenset(stated) if isinstance(stated, list) else frozenset({stated})
