"""Who gets a slot, in which order, and what one step computes."""

from concurrent.futures import Future

from engine.api import Message, Turn
from engine.models.sampling import Sampling
from engine.scheduler import MAX_BYPASSES, Scheduler
from engine.sequence import Sequence, State


def waiting(turn, session=None, priority=0):
    messages = (Message(role="user", text="?"),)
    asked = Turn(id=turn, session=session or turn, tenant="c", messages=messages, priority=priority)
    return Sequence(asked, lambda event: None, 0.0, Sampling())


def start(sequence):
    sequence.state = State.PREFILL
    return True


def running(scheduler):
    return [sequence.turn.id for sequence in scheduler.running]


def test_slots_are_given_in_order_of_priority_and_arrival():
    scheduler = Scheduler(max_batch=2, max_step_tokens=64)
    for sequence in (waiting("a"), waiting("b"), waiting("c", priority=1)):
        scheduler.add(sequence)
    scheduler.admit(start)
    assert running(scheduler) == ["c", "a"]


def test_E45_a_session_runs_one_turn_at_a_time_and_keeps_their_order():
    scheduler = Scheduler(max_batch=4, max_step_tokens=64)
    first, second, other = waiting("a", "s"), waiting("b", "s"), waiting("c", "x")
    for sequence in (first, second, other):
        scheduler.add(sequence)
    scheduler.admit(start)
    assert running(scheduler) == ["a", "c"]
    scheduler.remove(first)
    scheduler.admit(start)
    assert running(scheduler) == ["c", "b"]


def test_E59_a_turn_without_memory_lets_some_pass_and_then_nobody():
    scheduler = Scheduler(max_batch=100, max_step_tokens=128)
    big = waiting("big")
    scheduler.add(big)

    def fits(sequence):
        return sequence is not big and start(sequence)

    for n in range(MAX_BYPASSES + 3):
        scheduler.add(waiting(f"t{n}"))
        scheduler.admit(fits)
    assert len(scheduler.running) == MAX_BYPASSES


def test_a_turn_that_ended_at_its_start_takes_no_slot():
    scheduler = Scheduler(max_batch=1, max_step_tokens=64)
    scheduler.add(waiting("a"))

    def refuse(sequence):
        sequence.state = State.ENDED
        scheduler.remove(sequence)
        return True

    scheduler.admit(refuse)
    assert not scheduler.running and not scheduler.waiting


def test_a_turn_refused_at_its_start_does_not_hold_up_the_next_of_its_session():
    """The second waited for a later step, and with nothing running there was none."""
    scheduler = Scheduler(max_batch=1, max_step_tokens=64)
    refused, next_one = waiting("a", "s"), waiting("b", "s")
    scheduler.add(refused)
    scheduler.add(next_one)

    def begin(sequence):
        if sequence is next_one:
            return start(sequence)
        sequence.state = State.ENDED
        scheduler.remove(sequence)
        return True

    scheduler.admit(begin)
    assert running(scheduler) == ["b"]


def test_a_turn_whose_pictures_are_not_ready_holds_up_its_own_session_alone():
    scheduler = Scheduler(max_batch=4, max_step_tokens=64)
    first, second = waiting("a", "s"), waiting("b", "s")
    first.sight = Future()
    others = [waiting(f"o{n}") for n in range(3)]
    for sequence in (first, second, *others):
        scheduler.add(sequence)
    for _ in range(2 * MAX_BYPASSES):
        scheduler.admit(start)
    assert running(scheduler) == ["o0", "o1", "o2"]
    first.sight.set_result({})
    scheduler.admit(start)
    assert running(scheduler) == ["o0", "o1", "o2", "a"]
