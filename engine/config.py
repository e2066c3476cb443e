"""What the engine may use and how it runs, validated when made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


class UnsupportedModel(Exception):
    """The model cannot be loaded or run exactly; the message says why in one sentence."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Settings of one engine; sizes in bytes, lengths in tokens.

    `model` is a folder or a hub id. `threads` are torch's own (0: torch decides). `languages`
    are ISO 639-1 codes the model knows; `None` takes what the model folder says of itself and,
    when it says nothing, believes that the model knows every language.
    """

    model: str
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    # "cpu", "cuda", "cuda:1" or "auto": spread over all GPUs, then RAM, then disk, with no more
    # bytes than said on each ("0", "1", … and "cpu").
    device: str = "cpu"
    device_bytes: dict[str, int] = field(default_factory=dict)
    # Where and how exactly pictures are encoded; "" is as the rest of the model.
    vision_device: str = ""
    vision_dtype: Literal["", "bf16", "fp16", "fp32"] = ""
    # bf16 on a CPU whose bits depend on nothing beside a session; slower in large batches.
    deterministic: bool = False
    threads: int = 2
    languages: tuple[str, ...] | None = None
    # Turns that hold a slot and decode together, and turns that may wait for one.
    max_batch: int = 32
    max_waiting: int = 256
    # Tokens that one forward step may take: an idle engine prefills in windows of this size.
    max_step_tokens: int = 4096
    # What a step with a prompt in it may take while others read their answers, in seconds.
    inter_token_s: float = 0.1
    # 0 takes what the model was made for.
    max_context: int = 0
    max_new_tokens: int = 2048
    # KV of live sessions; then of those that had to give way, in RAM (0: they are computed again)
    # and in files of `kv_folder` (0 or no folder: none), which leave so much of the disk free.
    kv_budget_bytes: int = 2 << 30
    kv_ram_bytes: int = 1 << 30
    kv_folder: str | None = None
    kv_disk_bytes: int = 4 << 30
    kv_disk_floor_bytes: int = 1 << 30
    # Pictures of one turn that a model with eyes is given as pixels; older ones are read to it.
    max_pictures: int = 8
    # Features of pictures that are kept for the next question about them.
    feature_cache_bytes: int = 256 << 20
    # Answers of greedy turns, kept for whoever asks exactly the same.
    answer_cache_bytes: int = 16 << 20
    # Finished sessions whose tokens are remembered; their KV is evicted by bytes before that.
    max_sessions: int = 4096
    # A client's screen shows no more than one change a frame; below this deltas are gathered.
    delta_interval_s: float = 0.03

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model must name a folder or a hub id")
        if self.dtype not in ("bf16", "fp16", "fp32"):
            raise ValueError(f"dtype must be bf16, fp16 or fp32, not {self.dtype!r}")
        for name in (
            "max_batch",
            "max_waiting",
            "max_step_tokens",
            "max_new_tokens",
            "max_pictures",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.max_step_tokens < self.max_batch:
            raise ValueError("max_step_tokens must hold one token of each of max_batch turns")
        for name in (
            "threads",
            "max_context",
            "inter_token_s",
            "delta_interval_s",
            "feature_cache_bytes",
            "answer_cache_bytes",
            "kv_ram_bytes",
            "kv_disk_bytes",
            "kv_disk_floor_bytes",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        if self.kv_budget_bytes < 1 or self.max_sessions < self.max_batch:
            raise ValueError("kv_budget_bytes must be positive and max_sessions >= max_batch")

    @property
    def keeps_on_disk(self) -> bool:
        """Whether sessions outlive the process; what is written passes through the RAM tier."""
        return self.kv_folder is not None and self.kv_disk_bytes > 0 and self.kv_ram_bytes > 0
