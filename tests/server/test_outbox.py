"""The outbox on its own: budget, order, lanes, behind."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from server.outbox import FRAME_BYTES, LOSSY_PATIENCE_S, MAX_JOINED, Outbox


def event(seq: int, size: int = 20) -> bytes:
    return json.dumps({"seq": seq}).encode().ljust(size)


def taken(outbox: Outbox, now: float = 0.0) -> list[dict]:
    messages: list[dict] = []
    while (frame := outbox.take(now)) is not None:
        parsed = json.loads(frame)
        messages += parsed if isinstance(parsed, list) else [parsed]
    return messages


def started(budget: int = 10_000) -> Outbox:
    outbox = Outbox(budget)
    outbox.start_at(0, is_behind=False)
    return outbox


def test_answers_leave_before_events_and_all_in_one_frame():
    outbox = started()
    outbox.put_event(1, event(1))
    outbox.put_lossy("a", b'{"lossy":1}', 0.0)
    outbox.put_control(b'{"control":1}')
    assert json.loads(outbox.take(0.0)) == [{"control": 1}, {"seq": 1}, {"lossy": 1}]
    assert outbox.take(0.0) is None


def test_over_budget_the_events_go_and_the_answers_stay():
    outbox = started(100)
    outbox.put_control(b'{"control":1}')
    for seq in range(1, 10):
        outbox.put_event(seq, event(seq))
    assert outbox.is_behind and outbox.times_behind == 1
    assert taken(outbox) == [{"control": 1}]
    assert outbox.position == 0


def test_what_the_transport_holds_counts_against_the_budget():
    outbox = started(100)
    outbox.measure(90)
    outbox.put_event(1, event(1))
    assert outbox.is_behind


def test_a_gap_is_never_sent_over():
    outbox = started()
    outbox.put_event(1, event(1))
    outbox.put_event(3, event(3))
    assert outbox.is_behind
    assert taken(outbox) == []


def test_of_each_key_the_newest_state_alone_leaves():
    outbox = started()
    for value in range(5):
        outbox.put_lossy("cursor", json.dumps({"x": value}).encode(), 0.0)
    assert taken(outbox) == [{"x": 4}]


def test_presence_does_not_starve_behind_a_flood_of_events():
    outbox = started(10 * FRAME_BYTES)
    outbox.put_lossy("cursor", b'{"x":1}', 0.0)
    for seq in range(1, 9):
        outbox.put_event(seq, event(seq, FRAME_BYTES // 2))
    first = json.loads(outbox.take(LOSSY_PATIENCE_S + 0.1))
    assert {"x": 1} in first


def test_who_left_while_a_client_was_behind_does_not_stay_on_its_screen():
    outbox = started(100)
    outbox.put_event(2, event(2))
    assert outbox.is_behind
    outbox.put_lossy("presence:mei", b'{"here":1}', 0.0)
    outbox.put_lossy("presence:mei", b'{"gone":1}', 0.0)
    assert taken(outbox) == [{"gone": 1}]


def test_answers_that_nobody_reads_are_an_overrun():
    outbox = started(100)
    for _ in range(20):
        outbox.put_control(b'{"control":1}')
    assert outbox.is_overrun


def test_a_frame_over_the_limit_goes_alone():
    outbox = started(10 * FRAME_BYTES)
    outbox.put_event(1, event(1, 2 * FRAME_BYTES))
    outbox.put_event(2, event(2))
    assert len(outbox.take(0.0)) == 2 * FRAME_BYTES
    assert json.loads(outbox.take(0.0)) == {"seq": 2}


def test_a_frame_joins_no_more_than_its_count():
    outbox = started(10 * FRAME_BYTES)
    for seq in range(1, 2 * MAX_JOINED + 1):
        outbox.put_event(seq, event(seq))
    assert len(json.loads(outbox.take(0.0))) == MAX_JOINED


def test_after_the_events_were_dropped_for_good_nothing_more_comes_in():
    outbox = started()
    outbox.put_event(1, event(1))
    outbox.put_control(b'{"control":1}')
    outbox.drop_events()
    outbox.put_event(2, event(2))
    outbox.put_lossy("a", b"{}", 0.0)
    assert taken(outbox) == [{"control": 1}]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("live"), st.integers(1, 400)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("read"), st.integers(1, 5)),
        st.tuples(st.just("transport"), st.integers(0, 900)),
    ),
    max_size=80,
)


@given(steps, st.integers(200, 2_000))
def test_whatever_happens_each_event_leaves_once_and_in_order(steps, budget):
    """The log holds every event; a client that is behind gets the rest from there."""
    outbox = started(budget)
    log: list[bytes] = []
    got: list[int] = []
    for step, value in steps:
        if step == "live":
            log.append(event(len(log) + 1, value))
            outbox.put_event(len(log), log[-1])
        elif step == "transport":
            outbox.measure(value)
        elif step == "take":
            frame = outbox.take(0.0)
            got += seqs(frame)
        else:
            read_on(outbox, log, value)
        assert outbox.size_bytes <= budget or len(outbox._ordered) == 1
    while outbox.is_behind or not outbox.is_empty:
        got += seqs(outbox.take(0.0))
        outbox.measure(0)
        read_on(outbox, log, 5)
    assert got == list(range(1, len(log) + 1))


def read_on(outbox: Outbox, log: list[bytes], count: int) -> None:
    if outbox.is_behind and not outbox.has_ordered:
        for seq in range(outbox.position + 1, min(outbox.position + count, len(log)) + 1):
            if not outbox.put_from_log(seq, log[seq - 1]):
                break
        if outbox.position == len(log):
            outbox.resume()


def seqs(frame: bytes | None) -> list[int]:
    if frame is None:
        return []
    parsed = json.loads(frame)
    return [each["seq"] for each in (parsed if isinstance(parsed, list) else [parsed])]
