"""What a session remembers and what a sequence computes next."""

from engine.api import Message, Turn
from engine.kv.context import Context
from engine.models.sampling import Sampling
from engine.prompt import Prompt
from engine.sequence import MAX_ANSWERS, Sequence, Session, State


def test_a_session_forgets_its_oldest_answers(tiny):
    session = Session("s", Context(tiny.backend.shape))
    for n in range(MAX_ANSWERS + 5):
        session.remember(f"t{n}", [n])
    assert len(session.answers) == MAX_ANSWERS
    assert "t4" not in session.answers and session.answers["t5"] == [5]


def test_a_prompt_goes_on_behind_what_is_known_and_decoding_feeds_the_last_token(tiny):
    turn = Turn(id="t", session="s", tenant="c", messages=(Message(role="user", text="?"),))
    session = Session("s", Context(tiny.backend.shape))
    session.context.tokens = [1, 2]
    sequence = Sequence(turn, lambda event: None, 0.0, Sampling(), session=session)
    sequence.prompt = Prompt("", [1, 2, 3, 4, 5], ())
    sequence.state = State.PREFILL
    assert sequence.remaining == 3
    assert sequence.next_tokens(2) == [3, 4]
    session.context.tokens = [1, 2, 3, 4, 5, 8]
    sequence.state, sequence.made = State.DECODE, [8, 9]
    assert (sequence.remaining, sequence.next_tokens(1)) == (1, [9])


def test_a_sequence_that_lost_its_context_goes_on_across_the_end_of_its_prompt(tiny):
    turn = Turn(id="t", session="s", tenant="c", messages=(Message(role="user", text="?"),))
    session = Session("s", Context(tiny.backend.shape))
    sequence = Sequence(turn, lambda event: None, 0.0, Sampling(), session=session)
    sequence.prompt, sequence.made = Prompt("", [1, 2, 3], ()), [7, 8, 9]
    assert sequence.remaining == 6
    assert sequence.next_tokens(2) == [1, 2]
    session.context.tokens = [1, 2]
    assert sequence.next_tokens(3) == [3, 7, 8]
    session.context.tokens = [1, 2, 3, 7]
    assert sequence.next_tokens(9) == [8, 9]
