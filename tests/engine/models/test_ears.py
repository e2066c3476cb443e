"""What a model's processor makes of a recording, and what it does not take."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, LlamaConfig

from engine.config import EngineConfig
from engine.models.ears import Ears, takes_sounds
from engine.models.eyes import Eyes
from engine.models.loaded import LoadedModel
from tests.support.tiny_vision import save_tiny_vision


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_vision("qwen2_5_omni", tmp_path_factory.mktemp("omni"))


@pytest.fixture(scope="module")
def ears(folder: Path) -> Ears:
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    return Eyes.load(str(folder), model).ears


def saved(path: Path, samples: int = 16_000, rate: int = 16_000, channels: int = 1) -> str:
    noise = np.random.default_rng(samples).integers(-9_000, 9_000, samples * channels)
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes(noise.astype("<i2").tobytes())
    return str(path)


def test_features_are_those_of_the_models_own_path(ears, folder, tmp_path):
    """The hidden states of a prompt with the samples equal those with their features."""
    made = ears.listen(saved(tmp_path / "x.wav"))
    assert made.frames == 100 and made.tokens == (made.placeholder,) * 25
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    with wave.open(str(tmp_path / "x.wav"), "rb") as file:
        samples = np.frombuffer(file.readframes(16_000), "<i2").astype(np.float32) / 32_768
    inputs = ears._processor(
        audio=[samples], text=[f"a{ears.mark}b"], add_special_tokens=False, return_tensors="pt"
    )
    assert tuple(inputs["input_ids"][0, 1:-1].tolist()) == made.tokens
    words = model.get_input_embeddings()(inputs["input_ids"])
    words[0, 1:-1] = made.features.rows
    with torch.inference_mode():
        given = model.model(
            input_ids=inputs["input_ids"],
            input_features=inputs["input_features"],
            feature_attention_mask=inputs["feature_attention_mask"],
        )
        said = model.model(inputs_embeds=words)
    assert torch.equal(given.last_hidden_state, said.last_hidden_state)


def test_equal_samples_have_equal_digests_and_others_have_not(ears, tmp_path):
    first = ears.listen(saved(tmp_path / "a.wav"))
    assert first.digest == ears.listen(saved(tmp_path / "b.wav")).digest
    assert first.digest != ears.listen(saved(tmp_path / "c.wav", 16_001)).digest
    assert len(first.digest) == 16


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"rate": 8_000}, "16 kHz"),
        ({"channels": 2}, "16 kHz"),
        ({"samples": 0}, "less"),
        ({"samples": 200}, "less"),
        ({"samples": 64_001}, "more"),
    ],
)
def test_what_would_be_heard_in_part_or_otherwise_is_not_taken(ears, tmp_path, shape, words):
    with pytest.raises(ValueError, match=words):
        ears.listen(saved(tmp_path / "x.wav", **shape))


def test_what_is_no_recording_raises_as_the_decoder_does(ears, tmp_path):
    (tmp_path / "x.wav").write_bytes(b"no recording")
    with pytest.raises(wave.Error):
        ears.listen(str(tmp_path / "x.wav"))
    with pytest.raises(FileNotFoundError):
        ears.listen(str(tmp_path / "gone.wav"))


def test_other_models_do_not_hear():
    assert not takes_sounds(LlamaConfig())


def test_of_a_model_that_speaks_the_part_that_thinks_is_loaded(folder, tmp_path):
    """As the family is published: the thinker's configuration and weights under its own name."""
    whole = tmp_path / "whole"
    whole.mkdir()
    for file in folder.iterdir():
        (whole / file.name).write_bytes(file.read_bytes())
    thinker = json.loads((folder / "config.json").read_text())
    config = {"model_type": "qwen2_5_omni", "thinker_config": thinker, "enable_audio_output": False}
    (whole / "config.json").write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    renamed = {f"thinker.{name}": tensor for name, tensor in weights.items()}
    save_file(renamed, whole / "model.safetensors", {"format": "pt"})
    made = LoadedModel.load(EngineConfig(model=str(whole), dtype="fp32"))
    assert made.eyes is not None and made.eyes.ears is not None
    plain = LoadedModel.load(EngineConfig(model=str(folder), dtype="fp32"))
    for one, two in zip(
        made.backend.model.parameters(), plain.backend.model.parameters(), strict=True
    ):
        assert torch.equal(one, two)
