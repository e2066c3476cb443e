"""Who makes the step under way end early, and how often."""

import pytest

from engine.giveway import RANKS, GiveWay, rank_of


@pytest.mark.parametrize(
    ("step", "comes", "gives_way"),
    [
        (("text", "image"), "text", False),
        (("image", "video"), "text", True),
        (("image",), "video", False),
        (("background",), "image", True),
        (("background",), "background", False),
    ],
)
def test_a_step_gives_way_to_whoever_ranks_above_all_of_it(step, comes, gives_way):
    way = GiveWay()
    assert not way.is_due(rank_of(step))
    way.note(comes)
    assert way.is_due(rank_of(step)) is gives_way
    way.taken()
    assert not way.is_due(rank_of(step))


def test_what_gave_way_once_is_computed_before_it_does_again():
    way, picture = GiveWay(), RANKS["image"]
    way.note("text")
    assert way.is_due(picture)
    way.end(picture, was_given_up=True)
    way.taken()
    # The question that came is computed meanwhile, and another one comes.
    way.end(RANKS["text"], was_given_up=False)
    way.note("text")
    assert not way.is_due(picture)
    way.end(picture, was_given_up=False)
    assert way.is_due(picture)
