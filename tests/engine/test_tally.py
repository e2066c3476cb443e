"""Steps are counted, and what they cost is told."""

import pytest

from engine.models.sampling import Sampling
from engine.policy import Pace
from engine.scheduler import Slice
from engine.sequence import Sequence, State
from engine.tally import Tally
from tests.engine.conftest import question


def part(state, tokens):
    sequence = Sequence(question("?"), lambda event: None, 0.0, Sampling(), state=state)
    return Slice(sequence, list(range(tokens)), samples=True)


def test_prompts_and_words_are_told_apart():
    computed = []
    pace = Pace(0.1)
    tally = Tally(pace, lambda tokens, seconds: computed.append((tokens, seconds)))
    tally.note([part(State.PREFILL, 100)], 0.05)
    tally.note([part(State.DECODE, 1), part(State.DECODE, 1)], 0.03)
    tally.note([part(State.DECODE, 1), part(State.DECODE, 1), part(State.PREFILL, 8)], 0.04)
    assert computed == [(100, 0.05)]
    assert tally.counters()["steps"] == 3 and tally.counters()["tokens_prefilled"] == 108
    assert tally.counters()["step_seconds"] == pytest.approx(0.12)
    assert pace.decode_s(2) == 0.03
    assert tally.gauges()["prompt_token_seconds"] == pace.prompt_token_s > 0.0004
