"""Stop strings are found across deltas and never shown."""

from hypothesis import given
from hypothesis import strategies as st

from engine.text.stop import StopMatcher


def shown(stops, pieces):
    matcher = StopMatcher(stops)
    text = "".join(matcher.push(piece) for piece in pieces)
    return text + matcher.flush(), matcher.stopped


def test_L48_a_stop_string_across_chunks_leaks_no_prefix():
    pieces = ["The quick br", "own", " f", "ox jumps"]
    assert shown(("own fox",), pieces) == ("The quick br", True)


def test_E66_nothing_but_a_possible_beginning_is_held_back():
    matcher = StopMatcher(("own fox",))
    assert matcher.push("The quick brow") == "The quick br"
    assert matcher.push("se") == "owse"


def test_a_beginning_that_the_end_leaves_open_is_shown():
    assert shown(("###",), ["a ##"]) == ("a ##", False)


def test_no_stop_strings_hold_nothing():
    assert StopMatcher(()).push("abc") == "abc"
    assert StopMatcher(("",)).push("abc") == "abc"


@given(
    text=st.text(alphabet="abc", max_size=30),
    stops=st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 30), max_size=6),
)
def test_any_chunking_shows_what_stands_before_the_first_stop(text, stops, cuts):
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    result, stopped = shown(tuple(stops), pieces)
    found = [text.find(stop) for stop in stops if stop in text]
    assert stopped == bool(found)
    if not found:
        assert result == text
    else:
        # A stop that ends earlier wins over one that begins earlier but is not whole yet.
        first = min(text.find(stop) + len(stop) for stop in stops if stop in text)
        assert text.startswith(result) and len(result) < first
        assert not any(stop in result for stop in stops)
