"""One packed step over several sessions computes what each session alone would."""

import pytest
import torch
from transformers import LlamaConfig, MambaConfig, MambaForCausalLM

from engine.config import UnsupportedModel
from engine.kv.context import Context
from engine.models.backend import Backend, Segment, StepAbandoned
from tests.engine.conftest import tiny_model


def context(backend, room=256):
    made = Context(backend.shape)
    made.resize(room)
    return made


def alone(backend, tokens):
    return backend.run([Segment(context(backend), tokens, True)])[0]


def test_mixed_windows_and_decodes_equal_separate_runs(tiny):
    backend = tiny.backend
    first, second = list(range(10, 60)), list(range(60, 90))
    a, b = context(backend), context(backend)
    backend.run([Segment(a, first[:20], False)])
    backend.run([Segment(a, first[20:49], False), Segment(b, second[:7], False)])
    logits = backend.run([Segment(a, first[49:], True), Segment(b, second[7:], True)])
    assert torch.allclose(logits[0], alone(backend, first), atol=1e-3)
    assert torch.allclose(logits[1], alone(backend, second), atol=1e-3)
    assert a.tokens == first and b.tokens == second


def test_a_cropped_context_computes_as_if_the_rest_had_never_been(tiny):
    backend = tiny.backend
    used = context(backend)
    backend.run([Segment(used, list(range(10, 80)), False)])
    used.crop(30)
    logits = backend.run([Segment(used, [99, 98], True)])
    assert torch.allclose(logits[0], alone(backend, [*range(10, 40), 99, 98]), atol=1e-3)


@pytest.mark.parametrize("is_lean", [False, True])
def test_a_step_that_is_given_up_between_two_layers_leaves_no_trace(tokenizer, is_lean):
    backend = Backend(tiny_model("llama", len(tokenizer)), is_lean=is_lean)
    used = context(backend)
    backend.run([Segment(used, list(range(10, 40)), False)])
    asked = []

    def is_unwanted():
        asked.append(True)
        return len(asked) == 2

    with pytest.raises(StepAbandoned):
        backend.run([Segment(used, list(range(90, 120)), True)], is_unwanted)
    assert len(asked) == 2 and used.tokens == list(range(10, 40))
    logits = backend.run([Segment(used, [99, 98], True)])
    assert torch.equal(logits, backend.run([Segment(before(backend), [99, 98], True)]))


def before(backend):
    """Return a context that never saw the step that was given up."""
    made = context(backend)
    backend.run([Segment(made, list(range(10, 40)), False)])
    return made


def test_a_step_without_samples_returns_no_logits(tiny):
    backend = tiny.backend
    assert len(backend.run([Segment(context(backend), [5, 6], False)])) == 0


def test_the_model_answers(tiny):
    assert tiny.backend.answers()


def test_E79_a_recurrent_model_is_refused_in_words():
    model = MambaForCausalLM(
        MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, state_size=4)
    )
    with pytest.raises(UnsupportedModel):
        Backend(model)


def test_layers_that_cannot_be_rolled_back_are_refused(tiny):
    model = tiny.backend.model
    config = LlamaConfig(**model.config.to_dict())
    config.layer_types = ["linear_attention", "full_attention", "full_attention"]
    odd = type(model)(model.config)
    odd.config.layer_types = config.layer_types
    try:
        with pytest.raises(UnsupportedModel, match="linear_attention"):
            Backend(odd)
    finally:
        del model.config.layer_types


def test_every_length_around_a_window_equals_the_plain_model(tiny_pair):
    """The windowed model sees 24 tokens; at 25 the first of them must be gone."""
    reference, model = tiny_pair
    backend = model.backend
    tokens = list(range(10, 40))
    stepwise = context(backend)
    for length in range(1, len(tokens) + 1):
        expected = reference(torch.tensor([tokens[:length]])).logits[0, -1]
        [decoded] = backend.run([Segment(stepwise, tokens[length - 1 : length], True)])
        assert torch.allclose(decoded, expected, atol=1e-3)
        assert torch.allclose(alone(backend, tokens[:length]), expected, atol=1e-3)
