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
