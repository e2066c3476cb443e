"""Where weights come from (a folder, hub id or GGUF) and where they lie (GPU, RAM or disk)."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedModel,
)
from transformers.utils import logging

from engine.config import UnsupportedModel
from engine.embedded import convert_gguf
from engine.models.eyes import takes_pictures
from engine.models.vision import DTYPES

# Spread over all GPUs, then RAM, then disk, as accelerate counts them.
SPREAD = "auto"


def load_network(
    model: str, dtype: str, device: str, memory: dict[str, int] | None = None
) -> PreTrainedModel:
    """Load a folder or hub id on `device`, or spread it where that is "auto".

    `memory` are the bytes that each device ("0", "1", … for GPUs, "cpu") may take of a spread
    model; what fits nowhere is read from disk at every step. Raises `UnsupportedModel`, or
    `OSError` when it is not there.
    """
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    kind: Any = AutoModelForCausalLM
    config = AutoConfig.from_pretrained(model)
    # Of a model that also speaks the part that thinks.
    config = getattr(config, "thinker_config", config)
    if takes_pictures(config):
        kind = AutoModelForImageTextToText
    where: dict[str, Any] = {"config": config}
    if device == SPREAD:
        where["device_map"] = "auto"
        where["offload_folder"] = tempfile.mkdtemp(prefix="consilium-weights-")
        atexit.register(shutil.rmtree, where["offload_folder"], ignore_errors=True)
        if memory:
            named = {int(key) if key.isdecimal() else key: size for key, size in memory.items()}
            where["max_memory"] = named
    loaded: Any = kind.from_pretrained(
        model, dtype=DTYPES[dtype], output_loading_info=True, **where
    )
    network, found = loaded
    # What the folder lacks is filled with random numbers: such a model answers, in nonsense.
    if lacking := sorted(found["missing_keys"]):
        raise UnsupportedModel(f"{model} lacks {len(lacking)} weights, first {lacking[0]}")
    placed: PreTrainedModel = network if device == SPREAD else network.to(torch.device(device))
    return placed


def is_whole(model: PreTrainedModel) -> bool:
    """Whether all weights are in memory, none of them on disk."""
    return all(parameter.device.type != "meta" for parameter in model.parameters())


def home_of(model: PreTrainedModel) -> torch.device:
    """Return the device on which a model begins to compute, and where its KV lies."""
    embedding: Any = model.get_input_embeddings()
    devices = (p.device for p in (embedding.weight, *model.parameters()))
    return next((d for d in devices if d.type != "meta"), torch.device("cpu"))


def folder_of(model: str, cache: Path) -> str:
    """Return what `from_pretrained` takes: a GGUF file is converted once and kept in `cache`.

    Raises `UnsupportedModel` when it cannot be read.
    """
    path = Path(model).expanduser()
    if path.suffix.lower() != ".gguf":
        return model
    if not path.is_file():
        raise UnsupportedModel(f"there is no file {path}")
    stat = path.stat()
    about = f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    name = f"{path.stem}-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
    folder = cache / "gguf" / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch) / "folder"
            try:
                convert_gguf(path, made)
            # Whatever the readers of two libraries make of a broken file.
            except Exception as error:
                reason = " ".join(str(error).split())[:200]
                raise UnsupportedModel(f"{path} cannot be read: {reason}") from error
            os.rename(made, folder)
    return str(folder)
