"""Positions and features of any part of a prompt."""

from __future__ import annotations

import pytest
import torch

from engine.models.layout import Features, Layout, Picture, Placed, Sound, runs

IMAGE = 9


def picture(name: bytes, tokens: tuple[int, ...]) -> Picture:
    """Each placeholder's row counts up, so a part can be told from another."""
    count = tokens.count(IMAGE)
    rows = torch.arange(count, dtype=torch.float32)[:, None]
    return Picture(name, tokens, IMAGE, Features(rows, (rows + 100,)))


def test_without_pictures_a_token_stands_where_its_index_says():
    assert Layout().positions_of(3, 6).tolist() == [[3, 4, 5]]
    assert Layout().features_of(0, 10) == []


def test_positions_go_on_behind_the_prompt_from_index_and_delta():
    positions = torch.tensor([[0, 1, 1, 2], [0, 1, 1, 2], [0, 1, 2, 3]])
    layout = Layout((), positions, delta=-1)
    assert layout.positions_of(2, 4).tolist() == [[1, 2], [1, 2], [2, 3]]
    # One part reaches over the prompt's end: the delta holds for what lies behind it alone.
    assert layout.positions_of(3, 6).tolist() == [[2, 3, 4], [2, 3, 4], [3, 3, 4]]
    assert layout.positions_of(7, 8).tolist() == [[6], [6], [6]]


def test_any_cut_gives_the_features_of_its_own_placeholders_in_order():
    one, two = picture(b"one", (7, IMAGE, IMAGE, 8, IMAGE)), picture(b"two", (IMAGE, IMAGE))
    layout = Layout((Placed(2, one), Placed(10, two)))
    tokens = [0, 0, *one.tokens, 0, 0, 0, *two.tokens, 0]
    whole = [0.0, 1.0, 2.0, 0.0, 1.0]
    for cut in range(len(tokens) + 1):
        parts = layout.features_of(0, cut) + layout.features_of(cut, len(tokens))
        assert [row for part in parts for row in part.rows[:, 0].tolist()] == whole
        assert [row for part in parts for row in part.deep[0][:, 0].tolist()] == [
            row + 100 for row in whole
        ]
        before = sum(len(part.rows) for part in layout.features_of(0, cut))
        assert before == tokens[:cut].count(IMAGE)


def test_recordings_and_pictures_are_given_apart():
    shown = picture(b"one", (7, IMAGE, IMAGE, 8))
    rows = torch.arange(3, dtype=torch.float32)[:, None]
    played = Sound(b"two", (5, 5, 5), 5, Features(rows), frames=12)
    layout = Layout((Placed(2, shown), Placed(8, played)))
    assert [part.rows[:, 0].tolist() for part in layout.features_of(0, 11)] == [[0.0, 1.0]]
    assert [part.rows[:, 0].tolist() for part in layout.sounds_of(0, 11)] == [[0.0, 1.0, 2.0]]
    assert [part.rows[:, 0].tolist() for part in layout.sounds_of(9, 10)] == [[1.0]]


def test_a_span_is_the_whole_of_a_pictures_tokens():
    span = Placed(5, picture(b"digest", (7, IMAGE, IMAGE))).span
    assert (span.digest, span.start, span.length) == (b"digest", 5, 3)


def test_bytes_count_all_tensors():
    assert picture(b"x", (IMAGE,) * 4).features.bytes == 2 * 4 * 4


def test_runs_are_the_placeholders_in_a_row_and_those_that_touch_are_one():
    one, two = picture(b"one", (7, IMAGE, IMAGE, 8, IMAGE)), picture(b"two", (IMAGE, IMAGE, 8))
    assert runs((Placed(2, one), Placed(7, two), Placed(20, two))) == ((3, 5), (6, 9), (20, 22))


def test_E56_no_window_cuts_a_block_and_every_window_gets_on():
    layout = Layout(blocks=((3, 5), (6, 12), (12, 14)))
    assert [layout.whole(0, count) for count in range(1, 8)] == [1, 2, 3, 3, 5, 6, 6]
    # What begins inside of nothing but a block takes it whole, and no more.
    assert layout.whole(6, 1) == 6 and layout.whole(6, 7) == 6 and layout.whole(6, 8) == 8
    assert layout.blocks_of(5, 12) == ((6, 12),) and layout.blocks_of(14, 20) == ()
    with pytest.raises(AssertionError, match="cut"):
        layout.blocks_of(5, 11)


def test_without_blocks_a_window_is_what_it_is():
    assert Layout().whole(5, 7) == 7
