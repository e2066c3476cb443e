"""The prefill window follows what steps take; kinds of turns share it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.policy import (
    IDLE_PASS_S,
    QUICK_PROMPT,
    SMALLEST_WINDOW,
    STRETCH,
    WEIGHTS,
    WHOLE_PROMPT,
    Deficits,
    Pace,
    shares,
)

KINDS = tuple(WEIGHTS)


def paced(decode_s=0.03, prompt_token_s=0.0004, decoding=1, inter_token_s=0.1):
    pace = Pace(inter_token_s)
    for _ in range(60):
        pace.note(decoding, 0, decode_s)
        pace.note(decoding, 32, decode_s + 32 * prompt_token_s)
    return pace


def test_an_idle_engine_takes_a_prompt_of_a_thousand_tokens_in_one_pass():
    assert Pace(0.1).window(0, 4096) >= WHOLE_PROMPT
    assert paced(prompt_token_s=0.01).window(0, 4096) == WHOLE_PROMPT
    assert paced(prompt_token_s=1e-5).window(0, 4096) == 4096
    assert paced(prompt_token_s=0.0002).window(0, 4096) == pytest.approx(
        IDLE_PASS_S / 0.0002, rel=0.01
    )


def test_the_window_shrinks_as_the_measured_steps_grow():
    widths = [paced(prompt_token_s=each).window(1, 512) for each in (1e-4, 4e-4, 6e-4, 1e-3, 1e-2)]
    assert widths == [128, 32, 32, 16, 8]
    slow = [paced(decode_s=each, decoding=8).window(8, 512) for each in (0.05, 0.08, 0.095, 0.2)]
    assert slow == [64, 32, 8, 8]


@given(decode_s=st.floats(0.001, 1), each=st.floats(1e-5, 0.05), decoding=st.integers(1, 32))
def test_a_step_with_a_prompt_keeps_to_its_time_or_to_the_smallest_window(decode_s, each, decoding):
    pace = paced(decode_s, each, decoding)
    width = pace.window(decoding, 4096)
    bound = max(min(0.1, STRETCH * decode_s), decode_s)
    is_smallest = width == SMALLEST_WINDOW
    assert is_smallest or decode_s + width * each <= bound * 1.01


@given(decoding=st.integers(0, 40), step=st.integers(1, 600))
def test_a_step_never_exceeds_its_tokens(decoding, step):
    assert 0 <= Pace(0.1).window(decoding, step) <= max(step - decoding, 0)


def test_a_clock_that_stands_still_breaks_nothing():
    pace = Pace(0.1)
    pace.note(0, 100, 0.0)
    pace.note(4, 0, 0.0)
    pace.note(4, 8, 0.0)
    assert pace.window(0, 64) == 64
    assert pace.window(4, 64) >= SMALLEST_WINDOW


@given(
    steps=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(KINDS), st.integers(0, 500)), st.integers(0, 300)
        ),
        max_size=20,
    )
)
def test_deficits_fill_the_window_and_give_no_kind_more_than_it_wants(steps):
    deficits = Deficits()
    for wanted, window in steps:
        given_out = deficits.divide(wanted, window)
        assert sum(given_out.values()) == min(sum(wanted.values()), window)
        assert all(0 <= count <= wanted[kind] for kind, count in given_out.items())


def test_kinds_that_never_end_share_by_their_weights_and_background_gets_nothing():
    deficits = Deficits()
    got = dict.fromkeys(KINDS, 0)
    for _ in range(700):
        for kind, count in deficits.divide(dict.fromkeys(KINDS, 10_000), 8).items():
            got[kind] += count
    expected = {"text": 3200, "image": 1600, "video": 800, "background": 0}
    assert got == pytest.approx(expected, abs=8)


def test_background_gets_what_the_others_leave():
    assert Deficits().divide({"text": 10, "background": 100}, 32) == {"text": 10, "background": 22}


@given(remaining=st.lists(st.integers(1, 5000), max_size=32), room=st.integers(0, 512))
def test_shares_fill_the_window_and_give_no_prompt_more_than_it_has(remaining, room):
    given_out = shares(remaining, room)
    assert sum(given_out) == min(sum(remaining), room) or len(remaining) * 1 > room
    assert all(0 <= part <= whole for part, whole in zip(given_out, remaining, strict=True))
    assert sum(given_out) <= room


def test_E59_a_short_prompt_does_not_wait_for_a_long_one():
    assert shares([5000, 20], 512) == [492, 20]


def test_a_short_prompt_is_quick_whatever_small_windows_cost():
    """Eight tokens took as long as forty do, and then a question of forty had to wait."""
    pace = Pace(inter_token_s=0.1)
    assert pace.quick_window(0, 4096) == 250
    for _ in range(50):
        pace.note(8, 0, 0.05)
        pace.note(8, 8, 0.12)
    assert pace.quick_window(0, 4096) == QUICK_PROMPT
    assert pace.quick_window(0, 64) == 64
    assert pace.quick_window(8, 4096) == pace.window(8, 4096)
