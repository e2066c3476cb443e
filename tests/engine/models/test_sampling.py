"""Choices depend on the logits, the seed and the position alone."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.models.sampling import Sampling, choose

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


def test_frequencies_follow_the_probabilities():
    sampling = Sampling(temperature=1.0, seed=1)
    drawn = torch.tensor([choose(LOGITS, sampling, position) for position in range(4000)])
    measured = torch.bincount(drawn, minlength=4) / 4000
    assert torch.allclose(measured, torch.softmax(LOGITS, 0), atol=0.03)
