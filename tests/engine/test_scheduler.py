"""Who gets a slot, in which order, and what one step computes."""

from concurrent.futures import Future
from types import SimpleNamespace

from engine.api import Message, Turn
from engine.models.layout import Layout
from engine.models.sampling import Sampling
from engine.policy import BACKGROUND_WINDOW, Pace
from engine.prompt import Prompt
from engine.scheduler import MAX_BYPASSES, Scheduler
from engine.sequence import Sequence, State


def waiting(turn, session=None, came=0.0, **settings):
    messages = (Message(role="user", text="?"),)
    asked = Turn(id=turn, session=session or turn, tenant="c", messages=messages, **settings)
    return Sequence(asked, lambda event: None, came, Sampling())


def start(sequence):
    sequence.state = State.PREFILL
    return True


def running(scheduler):
    return [sequence.turn.id for sequence in scheduler.running]


def test_slots_are_given_in_order_of_priority_and_arrival():
    scheduler = Scheduler(max_batch=2, max_step_tokens=64, pace=Pace(0.1))
    for sequence in (waiting("a"), waiting("b"), waiting("c", priority=1)):
        scheduler.add(sequence)
    scheduler.admit(start)
    assert running(scheduler) == ["c", "a"]


def test_E45_a_session_runs_one_turn_at_a_time_and_keeps_their_order():
    scheduler = Scheduler(max_batch=4, max_step_tokens=64, pace=Pace(0.1))
    first, second, other = waiting("a", "s"), waiting("b", "s"), waiting("c", "x")
    for sequence in (first, second, other):
        scheduler.add(sequence)
    scheduler.admit(start)
    assert running(scheduler) == ["a", "c"]
    scheduler.remove(first)
    scheduler.admit(start)
    assert running(scheduler) == ["c", "b"]


def test_E59_a_turn_without_memory_lets_some_pass_and_then_nobody():
    scheduler = Scheduler(max_batch=100, max_step_tokens=128, pace=Pace(0.1))
    big = waiting("big")
    scheduler.add(big)

    def fits(sequence):
        return sequence is not big and start(sequence)

    for n in range(MAX_BYPASSES + 3):
        scheduler.add(waiting(f"t{n}"))
        scheduler.admit(fits)
    assert len(scheduler.running) == MAX_BYPASSES


def test_a_turn_that_ended_at_its_start_takes_no_slot():
    scheduler = Scheduler(max_batch=1, max_step_tokens=64, pace=Pace(0.1))
    scheduler.add(waiting("a"))

    def refuse(sequence):
        sequence.state = State.ENDED
        scheduler.remove(sequence)
        return True

    scheduler.admit(refuse)
    assert not scheduler.running and not scheduler.waiting


def test_a_turn_refused_at_its_start_does_not_hold_up_the_next_of_its_session():
    """The second waited for a later step, and with nothing running there was none."""
    scheduler = Scheduler(max_batch=1, max_step_tokens=64, pace=Pace(0.1))
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
    scheduler = Scheduler(max_batch=4, max_step_tokens=64, pace=Pace(0.1))
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


def full(scheduler, *sequences):
    for sequence in sequences:
        scheduler.add(sequence)
    scheduler.admit(start)


def preempt(sequence):
    sequence.state, sequence.answer = State.WAITING, object()
    return True


def test_text_overtakes_pictures_and_a_picture_that_waited_long_is_next():
    scheduler = Scheduler(max_batch=1, max_step_tokens=64, pace=Pace(0.1))
    full(scheduler, waiting("first"))
    scheduler.add(waiting("picture", kind="image", came=1.0))
    scheduler.add(waiting("soon", came=2.5))
    scheduler.add(waiting("late", came=3.5))
    assert [s.turn.id for s in scheduler.waiting] == ["soon", "picture", "late"]


def test_text_takes_the_slot_of_the_least_turn_that_runs():
    scheduler = Scheduler(max_batch=3, max_step_tokens=64, pace=Pace(0.1))
    video, image = waiting("video", kind="video"), waiting("image", kind="image")
    full(scheduler, image, video, waiting("text"))
    scheduler.add(waiting("new", came=1.0))
    scheduler.admit(start, preempt)
    assert sorted(running(scheduler)) == ["image", "new", "text"]
    assert scheduler.waiting == [video] and video.is_preempted


def test_nobody_displaces_a_turn_of_the_same_kind_and_priority_does():
    scheduler = Scheduler(max_batch=1, max_step_tokens=64, pace=Pace(0.1))
    full(scheduler, waiting("old"))
    scheduler.add(waiting("same", came=1.0))
    scheduler.admit(start, preempt)
    assert running(scheduler) == ["old"]
    scheduler.add(waiting("urgent", came=9.0, priority=1))
    scheduler.admit(start, preempt)
    assert running(scheduler) == ["urgent"]
    assert [s.turn.id for s in scheduler.waiting] == ["old", "same"]


def test_a_turn_that_cannot_give_way_is_passed_over_for_the_next():
    scheduler = Scheduler(max_batch=2, max_step_tokens=64, pace=Pace(0.1))
    full(scheduler, waiting("a", kind="video"), waiting("b", kind="image"))
    scheduler.add(waiting("text", came=1.0))
    scheduler.admit(start, lambda s: s.turn.id == "b" and preempt(s))
    assert running(scheduler) == ["a", "text"]


def test_memory_is_taken_from_lesser_turns_until_there_is_enough():
    scheduler = Scheduler(max_batch=9, max_step_tokens=64, pace=Pace(0.1))
    full(scheduler, *(waiting(f"v{n}", kind="video") for n in range(3)))
    for began, sequence in enumerate(scheduler.running):
        sequence.started_at = float(began)
    scheduler.add(waiting("text", came=1.0))

    def starts(sequence):
        return len(scheduler.running) < 2 and start(sequence)

    scheduler.admit(starts, preempt)
    assert running(scheduler) == ["v0", "text"]


def test_a_preempted_turn_goes_on_before_the_next_of_its_session():
    scheduler = Scheduler(max_batch=1, max_step_tokens=64, pace=Pace(0.1))
    old = waiting("old", "s", kind="video")
    full(scheduler, old)
    scheduler.add(waiting("text", came=1.0))
    scheduler.admit(start, preempt)
    scheduler.add(waiting("next", "s", came=1.0, priority=1))
    scheduler.remove(scheduler.running[0])
    scheduler.admit(start, preempt)
    assert running(scheduler) == ["old"]


def with_prompt(sequence, length):
    context = SimpleNamespace(length=0)
    sequence.session = SimpleNamespace(context=context)
    sequence.prompt = Prompt("", [1] * length, ())
    sequence.state = State.PREFILL
    return sequence


def test_a_background_turn_stands_still_while_any_other_runs():
    scheduler = Scheduler(max_batch=4, max_step_tokens=512, pace=Pace(0.1))
    scheduler.running = [
        with_prompt(waiting("idle", kind="background"), 500),
        with_prompt(waiting("text"), 100),
    ]
    assert [(s.sequence.turn.id, len(s.tokens)) for s in scheduler.schedule()] == [("text", 100)]
    scheduler.running = scheduler.running[:1]
    assert [len(s.tokens) for s in scheduler.schedule()] == [BACKGROUND_WINDOW]


def streaming(sequence):
    sequence = with_prompt(sequence, 20)
    sequence.context.length, sequence.made, sequence.state = 20, [1], State.DECODE
    return sequence


def test_answers_about_pictures_let_a_short_question_pass_but_never_twice_in_a_row():
    scheduler = Scheduler(max_batch=9, max_step_tokens=512, pace=Pace(0.1))
    pictures = [streaming(waiting(f"i{n}", kind="image")) for n in range(4)]
    coming = with_prompt(waiting("coming", kind="image"), 300)
    words = streaming(waiting("words"))
    scheduler.running = [*pictures, coming, words, with_prompt(waiting("first"), 8)]
    step = {s.sequence.turn.id: len(s.tokens) for s in scheduler.schedule()}
    assert step == {"words": 1, "first": 8}
    scheduler.running[-1] = with_prompt(waiting("second"), 8)
    step = {s.sequence.turn.id: len(s.tokens) for s in scheduler.schedule()}
    assert {"i0", "i1", "i2", "i3", "words", "second"} <= step.keys()
    scheduler.running[-1] = with_prompt(waiting("third"), 8)
    assert [s.sequence.turn.id for s in scheduler.schedule()] == ["words", "third"]


def test_answers_about_pictures_do_not_wait_for_a_long_question():
    pace = Pace(0.1)
    scheduler = Scheduler(max_batch=9, max_step_tokens=4096, pace=pace)
    picture = streaming(waiting("picture", kind="image"))
    most = pace.quick_window(0, 4096)
    scheduler.running = [picture, with_prompt(waiting("long"), most + 1)]
    assert scheduler.schedule()[0].sequence is picture
    scheduler.running = [picture, with_prompt(waiting("short"), most)]
    assert [s.sequence.turn.id for s in scheduler.schedule()] == ["short"]


def test_a_step_that_will_not_be_given_up_is_a_short_one():
    pace = Pace(0.1)
    scheduler = Scheduler(max_batch=9, max_step_tokens=4096, pace=pace)
    scheduler.running = [with_prompt(waiting("picture", kind="image"), 1000)]
    assert [len(s.tokens) for s in scheduler.schedule()] == [1000]
    quick = pace.quick_window(0, 4096)
    assert quick < 1000
    assert [len(s.tokens) for s in scheduler.schedule(is_short=True)] == [quick]


def test_only_a_prompt_of_text_makes_somebody_wait_for_a_first_word():
    scheduler = Scheduler(max_batch=9, max_step_tokens=512, pace=Pace(0.1))
    scheduler.running = [
        streaming(waiting("words")),
        with_prompt(waiting("picture", kind="image"), 9),
        with_prompt(waiting("idle", kind="background"), 9),
    ]
    assert not scheduler.is_understanding
    scheduler.running.append(with_prompt(waiting("text"), 9))
    assert scheduler.is_understanding


def test_E56_a_step_never_cuts_a_picture_whose_tokens_see_each_other():
    scheduler = Scheduler(max_batch=1, max_step_tokens=16, pace=Pace(0.1))
    sequence = with_prompt(waiting("a", kind="image"), 60)
    sequence.layout = Layout(blocks=((10, 40), (42, 50)))
    scheduler.running = [sequence]
    computed, sampled = [], []
    while sequence.context.length < 60:
        [part] = scheduler.schedule()
        sequence.context.length += len(part.tokens)
        computed.append(sequence.context.length)
        sampled.append(part.samples)
    assert computed == [10, 40, 56, 60]
    assert sampled == [False, False, False, True]


def test_a_flood_of_picture_prompts_leaves_a_text_its_share_of_the_window():
    scheduler = Scheduler(max_batch=32, max_step_tokens=120, pace=Pace(0.1))
    flood = [with_prompt(waiting(f"i{n}", kind="image"), 400) for n in range(20)]
    scheduler.running = [*flood, with_prompt(waiting("text"), 400)]
    counts = {s.sequence.turn.id: len(s.tokens) for s in scheduler.schedule()}
    assert counts["text"] == 80 and sum(counts.values()) == 120


def test_turns_are_late_when_they_have_not_begun_by_their_deadline():
    scheduler = Scheduler(max_batch=1, max_step_tokens=64, pace=Pace(0.1))
    hasty, patient = waiting("hasty", deadline_s=2.0), waiting("patient")
    for sequence in (hasty, patient):
        scheduler.add(sequence)
    assert scheduler.late(1.9) == [] and scheduler.next_deadline_s(1.5) == 0.5
    assert scheduler.late(2.0) == [hasty]
    assert scheduler.queue_seconds(3.0) == 3.0
    hasty.answer = object()
    assert scheduler.late(2.0) == [] and scheduler.next_deadline_s(1.5) is None
