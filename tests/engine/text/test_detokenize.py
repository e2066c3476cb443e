"""Tokens become text without half a character, half a grapheme, or a lost byte."""

import regex
from hypothesis import given
from hypothesis import strategies as st

from engine.text.detokenize import Detokenizer, WindowCharacters, decode, whole_graphemes

WRITTEN = st.text(
    alphabet=st.one_of(
        st.characters(codec="utf-8"), st.sampled_from("e\u0301🎉👨\u200d👩🇩🇪糖化 \n\r")
    ),
    max_size=40,
)


def pushed(characters, ids):
    return "".join(characters.push(token) for token in ids) + characters.flush()


@given(text=WRITTEN)
def test_L44_L50_any_text_comes_back_whole_and_without_replacement_characters(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert pushed(Detokenizer(tokenizer).characters(), ids) == text


@given(ids=st.lists(st.integers(0, 373), max_size=40))
def test_E64_any_tokens_add_up_to_what_the_tokenizer_decodes(tokenizer, ids):
    """Also those that are no text at all: broken bytes and special tokens."""
    assert pushed(Detokenizer(tokenizer).characters(), ids) == decode(tokenizer, ids)


@given(ids=st.lists(st.integers(0, 373), max_size=40))
def test_a_tokenizer_of_another_kind_adds_up_too(tokenizer, ids):
    """The general way, on tokens whose every character is at most four tokens long."""
    text = decode(tokenizer, ids).replace("\N{REPLACEMENT CHARACTER}", "")
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert pushed(WindowCharacters(tokenizer), ids) == text


def test_L46_bytes_that_begin_no_character_do_not_stall_the_stream(tokenizer):
    lone = tokenizer.convert_tokens_to_ids("Ģ")  # byte 0x83, a continuation without a start
    characters = Detokenizer(tokenizer).characters()
    assert characters.push(lone) == "\N{REPLACEMENT CHARACTER}"


def test_L46_a_character_cut_off_by_the_end_is_flushed_as_one_replacement(tokenizer):
    start = tokenizer.encode("🦴", add_special_tokens=False)[:-1]
    characters = Detokenizer(tokenizer).characters()
    assert {characters.push(token) for token in start} == {""}
    assert characters.flush() == "\N{REPLACEMENT CHARACTER}"


@given(text=WRITTEN)
def test_a_cut_falls_between_graphemes_only(text):
    whole = whole_graphemes(text)
    graphemes = regex.findall(r"\X", text)
    ends, at = {0}, 0
    for grapheme in graphemes:
        at += len(grapheme)
        ends.add(at)
    assert whole in ends
    assert len(text) - whole <= len(graphemes[-1]) if graphemes else whole == 0


def test_a_joined_emoji_is_held_until_the_next_grapheme_begins():
    assert whole_graphemes("a👨\u200d👩") == 1
    assert whole_graphemes("a👨\u200d👩b") == 4
    assert whole_graphemes("🇩🇪🇫") == 2
    assert whole_graphemes("e\u0301") == 0


def test_endless_marks_do_not_hold_the_answer_for_ever():
    assert whole_graphemes("a" + "\u0301" * 100) == 101


@given(text=WRITTEN, cut=st.integers(0, 40))
def test_what_was_delivered_of_an_answer_is_found_again(tokenizer, text, cut):
    ids = tokenizer.encode(text, add_special_tokens=False)
    detokenizer = Detokenizer(tokenizer)
    whole, rest = detokenizer.delivered(ids, text[:cut])
    assert decode(tokenizer, ids[:whole]) + rest == text[:cut]
    if cut >= len(text):
        assert (whole, rest) == (len(ids), "")
