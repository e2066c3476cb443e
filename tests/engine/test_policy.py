"""The prefill window: large for an idle engine, small beside many streams."""

from hypothesis import given
from hypothesis import strategies as st

from engine.policy import SMALLEST_WINDOW, shares, window


def test_an_idle_engine_takes_a_whole_step_of_prompt():
    assert window(0, 512) == 512


def test_the_window_shrinks_as_more_turns_stream():
    widths = [window(decoding, 512) for decoding in range(33)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == SMALLEST_WINDOW


@given(decoding=st.integers(0, 40), step=st.integers(1, 600))
def test_a_step_never_exceeds_its_tokens(decoding, step):
    assert 0 <= window(decoding, step) <= max(step - decoding, 0)


@given(remaining=st.lists(st.integers(1, 5000), max_size=32), room=st.integers(0, 512))
def test_shares_fill_the_window_and_give_no_prompt_more_than_it_has(remaining, room):
    given_out = shares(remaining, room)
    assert sum(given_out) == min(sum(remaining), room) or len(remaining) * 1 > room
    assert all(0 <= part <= whole for part, whole in zip(given_out, remaining, strict=True))
    assert sum(given_out) <= room


def test_E59_a_short_prompt_does_not_wait_for_a_long_one():
    assert shares([5000, 20], 512) == [492, 20]
