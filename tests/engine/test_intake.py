"""Calls of other threads, made between two steps."""

from engine.intake import Intake


def test_calls_are_made_in_their_order_and_once_and_a_fault_stays_with_its_call():
    intake, made = Intake(), []
    intake.call(lambda: made.append(1))
    intake.call(lambda: made[5])
    intake.call(lambda: made.append(2))
    assert len(intake) == 3
    intake.take()
    intake.take()
    assert (made, len(intake)) == ([1, 2], 0)


def test_what_a_call_asks_for_is_done_as_well():
    intake, made = Intake(), []
    intake.call(lambda: intake.call(lambda: made.append(1)))
    intake.take()
    assert made == [1]


def test_what_was_found_out_or_raised_goes_to_whoever_asked():
    intake = Intake()
    found, failed, given_up = intake.ask(lambda: 7), intake.ask(lambda: [][0]), intake.ask(print)
    assert given_up.cancel()
    intake.take()
    assert found.result(0) == 7
    assert isinstance(failed.exception(0), IndexError)
