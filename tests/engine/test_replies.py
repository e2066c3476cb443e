"""What the asker of a turn hears, and what is counted of it."""

from __future__ import annotations

from engine.api import EngineCode, TurnCancelled, TurnDelta, TurnFailed, TurnStarted
from engine.models.sampling import Sampling
from engine.prompt import Prompt
from engine.replies import Replies
from engine.sequence import Sequence
from engine.text.answer import AnswerText
from tests.engine.conftest import question


def begun(tiny, heard):
    turn = question("Is it high?")
    sequence = Sequence(turn, heard.append, 1.0, Sampling())
    sequence.prompt = Prompt("p", [1, 2, 3], ())
    sequence.cached_tokens, sequence.started_at, sequence.first_token_at = 2, 1.5, 2.0
    sequence.answer = AnswerText(turn.id, tiny.detokenizer.characters(), ("END",), ())
    return sequence


def test_a_turn_hears_its_start_its_words_and_its_end(tiny, tokenizer):
    heard, replies = [], Replies("tiny")
    sequence = begun(tiny, heard)
    replies.start(sequence)
    sequence.made = tokenizer.encode("It is high", add_special_tokens=False)
    for token in sequence.made:
        sequence.answer.push(token)
    replies.show(sequence)
    done = replies.done(sequence, "length", 4.0)
    assert isinstance(heard[0], TurnStarted)
    assert (heard[0].model, heard[0].prompt_tokens, heard[0].cached_tokens) == ("tiny", 3, 2)
    assert "".join(e.text for e in heard if isinstance(e, TurnDelta)) == done.text == "It is high"
    assert done.timings == {"queued": 0.5, "first_token": 1.0, "total": 3.0}
    assert replies.counters == {"turns_started": 1, "tokens_cached": 2, "turns_done_length": 1}


def test_a_turn_that_is_cut_hears_what_was_held_for_a_stop(tiny, tokenizer):
    heard, replies = [], Replies("tiny")
    sequence = begun(tiny, heard)
    for token in tokenizer.encode("high EN", add_special_tokens=False):
        sequence.answer.push(token)
    replies.show(sequence)
    assert isinstance(replies.cancelled(sequence), TurnCancelled)
    assert "".join(e.text for e in heard if isinstance(e, TurnDelta)) == "high EN"


def test_a_turn_that_never_began_is_cut_and_fails_without_a_word(tiny):
    heard, replies = [], Replies("tiny")
    sequence = Sequence(question("?"), heard.append, 1.0, Sampling())
    assert isinstance(replies.cancelled(sequence), TurnCancelled)
    failed = replies.failed(sequence, EngineCode.CONTEXT_FULL, "Too long.")
    assert isinstance(failed, TurnFailed) and failed.code is EngineCode.CONTEXT_FULL
    assert replies.counters == {"turns_cancelled": 1, "turns_failed_context_full": 1}
    assert not heard
