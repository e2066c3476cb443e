"""Choices depend on the logits, the seed and the position alone; filters are those of others."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.models.sampling import Sampling, choose, confidence, penalise

LOGITS = torch.tensor([0.0, 3.0, 2.0, -1.0])


def test_temperature_zero_is_greedy():
    assert choose(LOGITS, Sampling(), 0) == 1


def test_the_same_seed_and_position_choose_the_same():
    sampling = Sampling(temperature=1.0, seed=3)
    drawn = [choose(LOGITS, sampling, position) for position in range(50)]
    assert drawn == [choose(LOGITS, sampling, position) for position in range(50)]
    assert len(set(drawn)) > 1


@given(seed=st.integers(0, 1000), position=st.integers(0, 1000))
def test_a_nucleus_of_one_token_is_greedy(seed, position):
    assert choose(LOGITS, Sampling(temperature=1.0, top_p=0.5, seed=seed), position) == 1
    assert choose(LOGITS, Sampling(temperature=1.0, top_k=1, seed=seed), position) == 1
    assert choose(LOGITS, Sampling(temperature=1.0, min_p=1.0, seed=seed), position) == 1


def test_frequencies_follow_the_probabilities():
    sampling = Sampling(temperature=1.0, seed=1)
    drawn = torch.tensor([choose(LOGITS, sampling, position) for position in range(4000)])
    measured = torch.bincount(drawn, minlength=4) / 4000
    assert torch.allclose(measured, torch.softmax(LOGITS, 0), atol=0.03)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 3, 20]),
    top_p=st.sampled_from([1.0, 0.9, 0.3]),
    min_p=st.sampled_from([0.0, 0.1, 0.6]),
)
def test_what_may_be_drawn_is_what_transformers_leaves_in(seed, temperature, top_k, top_p, min_p):
    logits = torch.randn(40, generator=torch.Generator().manual_seed(seed)) * 2
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    warpers.append(TopPLogitsWarper(top_p))
    if min_p:
        warpers.append(MinPLogitsWarper(min_p))
    left = warpers(torch.zeros(1, 0, dtype=torch.long), logits[None].clone())[0]
    sampling = Sampling(temperature, top_k, top_p, min_p, seed=seed)
    drawn = {choose(logits, sampling, position) for position in range(400)}
    assert drawn <= set(torch.isfinite(left).nonzero()[:, 0].tolist())
    # What is likely enough to be seen in 400 draws is seen.
    assert set((left.softmax(0) > 0.05).nonzero()[:, 0].tolist()) <= drawn


def test_a_repetition_counts_less_as_in_transformers():
    prompt, made = [0, 1, 1], [2]
    expected = RepetitionPenaltyLogitsProcessor(1.5)(torch.tensor([prompt + made]), LOGITS[None])
    assert torch.equal(
        penalise(LOGITS, Sampling(repetition_penalty=1.5), prompt, made), expected[0]
    )
    assert LOGITS.tolist() == [0.0, 3.0, 2.0, -1.0]


def test_presence_counts_once_and_frequency_each_time_and_neither_the_prompt():
    sampling = Sampling(presence_penalty=0.5, frequency_penalty=0.25)
    assert penalise(LOGITS, sampling, [0, 1], [1, 1, 3]).tolist() == [0.0, 2.0, 2.0, -1.75]
    assert penalise(LOGITS, sampling, [0, 1], []).tolist() == LOGITS.tolist()


def test_confidence_is_the_probability_that_the_model_gave():
    assert confidence(LOGITS, 1) == pytest.approx(torch.softmax(LOGITS, 0)[1].item())
