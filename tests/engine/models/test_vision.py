"""Pictures may be encoded more exactly, or elsewhere, than text is computed."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

from engine.api import Message, Seen, Turn, TurnDone
from engine.config import EngineConfig, UnsupportedModel
from engine.engine import LocalEngine
from engine.models.loaded import LoadedModel
from engine.models.vision import place_vision, vision_parts
from tests.engine.conftest import answer, tiny_model
from tests.support.tiny_vision import FAMILIES, save_tiny_vision


@pytest.fixture
def picture(tmp_path) -> str:
    path = tmp_path / "p.png"
    Image.effect_noise((150, 100), 60).convert("RGB").save(path)
    return str(path)


ONE_PRECISION = ("idefics3", "smolvlm")


@pytest.mark.parametrize("family", ONE_PRECISION)
def test_a_family_that_cannot_compute_in_two_precisions_is_refused(family, tmp_path):
    save_tiny_vision(family, tmp_path)
    config = EngineConfig(model=str(tmp_path), dtype="bf16", vision_dtype="fp32")
    with pytest.raises(UnsupportedModel, match="one precision"):
        LoadedModel.load(config)
    same = EngineConfig(model=str(tmp_path), dtype="bf16", vision_dtype="bf16")
    assert LoadedModel.load(same).backend.shape.dtype is torch.bfloat16


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ONE_PRECISION])
async def test_vision_in_fp32_beside_text_in_bf16(family, picture, tmp_path):
    save_tiny_vision(family, tmp_path / "model")

    def loaded(dtype: str, vision: str) -> tuple[EngineConfig, LoadedModel]:
        config = EngineConfig(model=str(tmp_path / "model"), dtype=dtype, vision_dtype=vision)
        return config, LoadedModel.load(config)

    _, exact = loaded("fp32", "")
    _, rough = loaded("bf16", "")
    config, mixed = loaded("bf16", "fp32")
    kinds = {p.dtype for part in vision_parts(mixed.backend.model) for p in part.parameters()}
    assert kinds == {torch.float32}
    assert mixed.backend.shape.dtype is torch.bfloat16
    found = [m.eyes.look(picture).features.rows for m in (exact, rough, mixed)]
    assert found[2].dtype is torch.bfloat16
    errors = [(rows.float() - found[0]).abs().mean() for rows in found[1:]]
    assert errors[1] < errors[0]
    seen = Seen(
        media="a",
        name="a",
        path="",
        media_type="image/png",
        width=150,
        height=100,
        pictures=(picture,),
    )
    message = Message(role="user", text="What?", seen=(seen,))
    engine = LocalEngine(config, mixed)
    await engine.start()
    try:
        turn = Turn(id="t", session="s", tenant="c", messages=(message,), max_new_tokens=4)
        events = await answer(engine, turn)
    finally:
        await engine.stop()
    assert isinstance(events[-1], TurnDone) and events[0].sight == "pixels"


def test_a_model_without_eyes_has_nothing_to_place():
    model = tiny_model("llama", 300)
    assert vision_parts(model) == []
    place_vision(model, "", "fp16")
    assert model.dtype is torch.float32
