"""An answer's deltas: whole graphemes, rising offsets, nothing lost at its end."""

from hypothesis import given
from hypothesis import strategies as st

from engine.api import TurnDelta
from engine.text.answer import AnswerText
from engine.text.detokenize import Detokenizer


def made(tokenizer, text, stops=(), upto=None):
    answer = AnswerText("t", Detokenizer(tokenizer).characters(), stops, [])
    events = []
    for token in tokenizer.encode(text, add_special_tokens=False)[:upto]:
        answer.push(token)
        events += answer.take()
    return answer, events


@given(text=st.text(alphabet=st.sampled_from("ae\u0301 \n5.%🎉👨\u200d糖"), max_size=30))
def test_deltas_add_up_and_their_offsets_rise(tokenizer, text):
    answer, events = made(tokenizer, text)
    events += answer.take(final=True)
    deltas = [event for event in events if isinstance(event, TurnDelta)]
    at = 0
    for delta in deltas:
        assert delta.offset == at
        at += len(delta.text)
    offsets = [delta.offset for delta in deltas]
    assert offsets == sorted(set(offsets))
    assert "".join(delta.text for delta in deltas) == answer.text == text


def test_a_mark_that_comes_later_stays_with_its_letter(tokenizer):
    _, events = made(tokenizer, "cafe\u0301 x")
    assert not any(event.text.startswith("\u0301") for event in events)


def test_an_answer_cut_off_shows_what_was_held_but_no_half_character(tokenizer):
    answer, events = made(tokenizer, "ab🎉", upto=-1)
    assert "".join(event.text for event in events + answer.cut()) == "ab"


def test_nothing_follows_a_stop_string(tokenizer):
    answer, events = made(tokenizer, "one STOP two", stops=("STOP",))
    assert answer.stopped
    answer.take(final=True)
    assert answer.text == "one "
