"""A model with everything that belongs to it: tokenizer, template, end tokens, languages."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.api import Message
from engine.config import EngineConfig, UnsupportedModel
from engine.embedded import read_manifest
from engine.models.backend import Backend
from engine.models.determinism import is_deterministic
from engine.models.eyes import Eyes
from engine.models.guide import Guides
from engine.prompt import PromptWriter
from engine.text.detokenize import Detokenizer

log = logging.getLogger(__name__)

# Of a folder with other shapes transformers lists every tensor.
MAX_REASON_CHARS = 200


@dataclass(frozen=True)
class LoadedModel:
    """What the loop needs; `languages` are those the model knows, None when it says nothing.

    `eyes` are those of a model that takes pixels.
    """

    name: str
    backend: Backend
    tokenizer: PreTrainedTokenizerBase
    detokenizer: Detokenizer
    writer: PromptWriter
    end_tokens: frozenset[int]
    languages: tuple[str, ...] | None
    guides: Guides
    eyes: Eyes | None = None

    @classmethod
    def load(
        cls, config: EngineConfig, progress: Callable[[str], None] = lambda stage: None
    ) -> LoadedModel:
        """Load what `config` names; `progress` gets the name of each stage.

        Raises `UnsupportedModel`.
        """
        # A hub id has one slash at most; anything else is looked for on this machine alone.
        is_path = config.model.count("/") > 1 or config.model.startswith((".", "/", "~"))
        if is_path and not os.path.isdir(config.model):
            raise UnsupportedModel(f"there is no model folder {config.model}")
        progress("weights")
        with _said_in_a_sentence(f"the weights of {config.model} cannot be loaded"):
            backend = Backend.load(
                config.model,
                config.dtype,
                config.device,
                is_deterministic=config.deterministic,
                is_named=config.keeps_on_disk,
                memory=config.device_bytes,
                vision_device=config.vision_device,
                vision_dtype=config.vision_dtype,
            )
        if config.deterministic:
            progress("determinism")
            if not is_deterministic(backend):
                log.warning("on this machine answers may depend on what runs beside them")
                backend.is_deterministic = False
        progress("tokenizer")
        with _said_in_a_sentence(f"the tokenizer of {config.model} cannot be loaded"):
            tokenizer = AutoTokenizer.from_pretrained(config.model)
        eyes = None
        if backend.takes_pictures:
            with _said_in_a_sentence(f"the picture processor of {config.model} cannot be loaded"):
                eyes = Eyes.load(config.model, backend.model)
        manifest = read_manifest(Path(config.model))
        languages = config.languages or (manifest.languages if manifest else None)
        name = manifest.name if manifest else config.model
        with _said_in_a_sentence(f"the chat template of {config.model} cannot be used"):
            model = cls.assemble(name, backend, tokenizer, languages, eyes)
            question = (Message(role="user", text="?"),)
            model.writer.write(question, lambda turn, text: None, backend.max_context)
        return model

    @classmethod
    def assemble(
        cls,
        name: str,
        backend: Backend,
        tokenizer: PreTrainedTokenizerBase,
        languages: tuple[str, ...] | None,
        eyes: Eyes | None = None,
    ) -> LoadedModel:
        """Put together a model that is in memory already."""
        end_tokens = _end_tokens(backend, tokenizer)
        return cls(
            name=name,
            backend=backend,
            tokenizer=tokenizer,
            detokenizer=Detokenizer(tokenizer),
            writer=PromptWriter(tokenizer, eyes),
            end_tokens=end_tokens,
            languages=languages,
            guides=Guides(tokenizer, backend.vocabulary, end_tokens),
            eyes=eyes,
        )


def _end_tokens(backend: Backend, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    generation = backend.model.generation_config
    stated = generation.eos_token_id if generation is not None else None
    if stated is None:
        stated = tokenizer.eos_token_id
    if stated is None:
        return frozenset()
    return frozenset(stated) if isinstance(stated, list) else frozenset({stated})


@contextmanager
def _said_in_a_sentence(what: str) -> Iterator[None]:
    """Turn what a library raises on a broken folder, of any kind and length, into one sentence."""
    try:
        yield
    except UnsupportedModel:
        raise
    except Exception as error:
        first = re.split(r"(?<=\.)\s", " ".join(str(error).split()), maxsplit=1)[0]
        reason = f"{type(error).__name__}: {first[:MAX_REASON_CHARS]}".rstrip(".: ")
        raise UnsupportedModel(f"{what} ({reason})") from error
