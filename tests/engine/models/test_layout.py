"""Positions and features of any part of a prompt."""

from __future__ import annotations

import torch

from engine.models.layout import Features, Layout, Picture, Placed

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


def test_a_span_is_the_whole_of_a_pictures_tokens():
    span = Placed(5, picture(b"digest", (7, IMAGE, IMAGE))).span
    assert (span.digest, span.start, span.length) == (b"digest", 5, 3)


def test_bytes_count_all_tensors():
    assert picture(b"x", (IMAGE,) * 4).features.bytes == 2 * 4 * 4
