"""What a model's processor makes of a picture file, and which models are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image, UnidentifiedImageError
from transformers import AutoModelForImageTextToText, LlamaConfig, LlavaConfig

from engine.config import EngineConfig, UnsupportedModel
from engine.models.eyes import Eyes, takes_pictures
from engine.models.loaded import LoadedModel
from tests.support.tiny_vision import FAMILIES, save_tiny_vision


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_vision(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def eyes(folder: Path) -> Eyes:
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    return Eyes.load(str(folder), model)


def saved(path: Path, mode: str = "RGB", size: tuple[int, int] = (120, 80)) -> str:
    Image.radial_gradient("L").resize(size).convert(mode).save(path)
    return str(path)


def test_features_are_those_of_the_models_own_path(eyes, folder, tmp_path):
    """Bit for bit: the same pixels given with the text, and their features given instead."""
    path = saved(tmp_path / "x.png")
    made = eyes.look(path)
    with Image.open(path) as image:
        inputs = eyes.processor(
            images=[image.convert("RGB")],
            text=[f"a{eyes.mark}b"],
            add_special_tokens=False,
            return_tensors="pt",
        )
    ids = inputs["input_ids"][0].tolist()
    assert tuple(ids[1:-1]) == made.tokens
    assert made.tokens.count(made.placeholder) == len(made.features.rows)
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    with torch.inference_mode():
        seen = model(**inputs).image_outputs
    rows = torch.cat(list(seen.pooler_output)).reshape(made.features.rows.shape)
    assert torch.equal(rows, made.features.rows)


def test_equal_pixels_have_equal_digests_and_others_have_not(eyes, tmp_path):
    first = eyes.look(saved(tmp_path / "a.png"))
    same = eyes.look(saved(tmp_path / "b.png"))
    with Image.open(tmp_path / "a.png") as image:
        image.putpixel((0, 0), (1, 2, 3))
        image.save(tmp_path / "c.png")
    assert first.digest == same.digest != eyes.look(str(tmp_path / "c.png")).digest
    # As many bytes, another shape.
    wide = eyes.look(saved(tmp_path / "d.png", size=(80, 120)))
    assert wide.digest != first.digest and len(first.digest) == 16


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "I;16"])
def test_every_mode_perception_may_write_is_taken(eyes, tmp_path, mode):
    name = "x.tif" if mode == "CMYK" else "x.png"
    image = Image.radial_gradient("L").resize((90, 60))
    image = image.point(lambda v: v * 257, "I").convert("I;16") if mode == "I;16" else image
    image.convert(mode).save(tmp_path / name)
    assert torch.isfinite(eyes.look(str(tmp_path / name)).features.rows).all()


def test_what_is_no_picture_raises_as_the_decoder_does(eyes, tmp_path):
    (tmp_path / "x.png").write_bytes(b"no picture")
    with pytest.raises(UnidentifiedImageError):
        eyes.look(str(tmp_path / "x.png"))
    with pytest.raises(FileNotFoundError):
        eyes.look(str(tmp_path / "gone.png"))


def test_a_template_without_a_place_for_pictures_is_refused(tmp_path):
    folder = save_tiny_vision("qwen2_5_vl", tmp_path)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}x{% endfor %}")
    with pytest.raises(UnsupportedModel, match="no place for pictures"):
        LoadedModel.load(EngineConfig(model=str(folder), dtype="fp32"))


def test_a_family_that_is_not_proven_is_refused_in_a_sentence():
    assert not takes_pictures(LlamaConfig())
    with pytest.raises(UnsupportedModel, match="llava models take pictures"):
        takes_pictures(LlavaConfig())
