"""What the web process passes to the engine's own: plain values, no torch behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one engine process; sizes in bytes, 0 means the engine's own default.

    `model` is the name of an embedded model (in `models_cache`), a folder or a hub id;
    `speech_model` that of an embedded one or the folder of a Whisper model for CTranslate2.
    `perception` holds fields of perception's own configuration by name; those not given keep
    their defaults.
    """

    models_cache: str
    model: str = "smollm2-135m"
    speech_model: str = "whisper-tiny-en"
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    device: str = "cpu"
    device_bytes: dict[str, int] = {}
    vision_device: str = ""
    vision_dtype: Literal["", "bf16", "fp16", "fp32"] = ""
    deterministic: bool = False
    threads: int = 2
    max_batch: int = 32
    max_waiting: int = 256
    max_context: int = 0
    kv_budget_bytes: int = 2 << 30
    kv_ram_bytes: int = 1 << 30
    kv_folder: str | None = None
    kv_disk_bytes: int = 4 << 30
    kv_disk_floor_bytes: int = 1 << 30
    has_perception: bool = True
    perception: dict[str, int | float | str | bool] = {}


def default_models_cache(environment: dict[str, str]) -> Path:
    """Return where models are kept: `CONSILIUM_MODELS`, else the user's cache folder."""
    if stated := environment.get("CONSILIUM_MODELS"):
        return Path(stated)
    return Path.home() / ".cache" / "consilium" / "models"
