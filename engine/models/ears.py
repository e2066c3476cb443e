"""A model's ears: from a recording to what stands for it in a prompt."""

from __future__ import annotations

import wave
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from transformers import PreTrainedConfig, PreTrainedModel

from engine.models.layout import Features, Sound

# Families whose answers about recordings are proven to be those of `generate` (tests/engine).
HEARING = ("qwen2_5_omni_thinker",)
SAMPLES_PER_S = 16_000


def takes_sounds(config: PreTrainedConfig) -> bool:
    """Whether a model of this configuration is given recordings."""
    return config.model_type in HEARING


class Ears:
    """Prepares recordings and computes their features. Not thread-safe: one thread calls it."""

    def __init__(self, model: PreTrainedModel, processor: Any) -> None:
        self._model = model
        self._processor = processor
        self.placeholder: int = model.config.audio_token_id
        # The text that a template puts where a recording stands.
        self.mark: str = processor.audio_token
        self._settings = repr(sorted(processor.feature_extractor.to_dict().items())).encode()

    @torch.inference_mode()
    def listen(self, path: str) -> Sound:
        """Take a recording, 16 kHz mono in 16 bits (WAV).

        Raises `OSError`, `EOFError` or `wave.Error` when it cannot be read, `ValueError` when it is
        longer or shorter than the model takes: it would hear only a part.
        """
        samples = _samples(path)
        if len(samples) > self._processor.feature_extractor.n_samples:
            raise ValueError(f"{len(samples) / SAMPLES_PER_S:.1f} s are more than the model takes")
        digest = blake3(self._settings)
        digest.update(samples.tobytes())
        made = self._processor(
            audio=[samples.astype(np.float32) / 32_768],
            text=[self.mark],
            add_special_tokens=False,
            return_tensors="pt",
        )
        tokens = tuple(made["input_ids"][0].tolist())
        if self.placeholder not in tokens:
            raise ValueError(f"{len(samples)} samples are less than the model takes")
        mask = made["feature_attention_mask"]
        device = self._model.device
        heard = self._model.model.get_audio_features(
            made["input_features"].to(device, self._model.dtype),
            feature_attention_mask=mask.to(device),
            return_dict=True,
        )
        return Sound(
            digest=digest.digest(length=16),
            tokens=tokens,
            placeholder=self.placeholder,
            features=Features(heard.last_hidden_state),
            frames=int(mask.sum()),
        )


def _samples(path: str) -> np.ndarray[Any, np.dtype[np.int16]]:
    with wave.open(path, "rb") as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (SAMPLES_PER_S, 1, 2):
            raise ValueError("only 16 kHz mono in 16 bits is taken")
        return np.frombuffer(file.readframes(file.getnframes()), np.dtype("<i2"))
