"""A model folder with what belongs to it, of the embedded kind and of any other."""

import pytest

from engine.config import EngineConfig
from engine.models.backend import Backend
from engine.models.loaded import LoadedModel


@pytest.mark.model
def test_the_embedded_model_says_its_name_languages_and_end(embedded_model):
    stages = []
    model = LoadedModel.load(EngineConfig(model=str(embedded_model)), stages.append)
    assert stages == ["weights", "tokenizer"]
    assert (model.name, model.languages) == ("smollm2-135m", ("en",))
    assert model.tokenizer.convert_tokens_to_ids("<|im_end|>") in model.end_tokens


def test_a_folder_of_another_origin_is_believed_to_know_every_language(tiny, tokenizer, tmp_path):
    network = tiny.backend.model
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = LoadedModel.load(EngineConfig(model=str(tmp_path), dtype="fp32"))
    assert model.languages is None and model.name == str(tmp_path)
    assert isinstance(model.backend, Backend) and model.end_tokens == {2}


def test_what_is_not_there_is_an_error_at_load(tmp_path):
    with pytest.raises(OSError):
        LoadedModel.load(EngineConfig(model=str(tmp_path / "nothing")))
