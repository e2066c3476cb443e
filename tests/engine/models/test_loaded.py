"""A model folder with what belongs to it, of the embedded kind and of any other."""

import json
import shutil

import pytest

from engine.config import EngineConfig, UnsupportedModel
from engine.models.backend import Backend
from engine.models.loaded import MAX_REASON_CHARS, LoadedModel


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


@pytest.fixture
def folder(tiny, tokenizer, tmp_path):
    """A whole model folder, for a test to break."""
    tiny.backend.model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def lack_weights(folder):
    """More layers than there are weights for: what lacks is made up by transformers."""
    config = json.loads((folder / "config.json").read_text())
    layers = config["num_hidden_layers"] + 1
    config |= {"num_hidden_layers": layers, "layer_types": ["full_attention"] * layers}
    (folder / "config.json").write_text(json.dumps(config))


def break_template(folder):
    (folder / "chat_template.jinja").write_text("{% for m in %}{{")


def name_an_unknown_kind(folder):
    (folder / "config.json").write_text('{"model_type": "foozle", "architectures": ["Foo"]}')


def cut_weights(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def break_tokenizer(folder):
    (folder / "tokenizer.json").write_text("[]")


@pytest.mark.parametrize(
    ("breaking", "said"),
    [
        (lack_weights, "lacks 9 weights, first model.layers.3."),
        (break_template, "the chat template of "),
        (name_an_unknown_kind, "has model type `foozle`"),
        (cut_weights, "the weights of "),
        (break_tokenizer, "the tokenizer of "),
        (shutil.rmtree, "there is no model folder "),
    ],
)
def test_a_broken_folder_is_refused_at_load_in_one_short_sentence(folder, breaking, said):
    """Of these, lacking weights and a broken template once passed as a model that answers."""
    breaking(folder)
    with pytest.raises(UnsupportedModel) as refused:
        LoadedModel.load(EngineConfig(model=str(folder), dtype="fp32"))
    sentence = str(refused.value)
    assert said in sentence and "\n" not in sentence
    assert len(sentence) < MAX_REASON_CHARS + 2 * len(str(folder)) + 100
