"""Rates, with the time passed in."""

from __future__ import annotations

from server.limits import ConnectionLimits, TokenBucket


def test_a_burst_passes_and_then_the_rate():
    bucket = TokenBucket(per_s=2, burst=3, now=0)
    assert [bucket.take(0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert bucket.take(0.5) == 0
    assert bucket.take(0.5) > 0


def test_an_idle_bucket_holds_no_more_than_its_burst():
    bucket = TokenBucket(per_s=100, burst=2, now=0)
    assert [bucket.take(1_000) == 0 for _ in range(3)] == [True, True, False]


def test_presence_has_a_rate_of_its_own():
    limits = ConnectionLimits(messages_per_s=1, burst=1, presence_per_s=5, now=0)
    assert limits.message(0) == 0 and limits.message(0) > 0
    assert [limits.may_show_presence(0) for _ in range(6)] == [True] * 5 + [False]


def test_who_never_stops_is_hopeless_and_who_waits_is_not():
    limits = ConnectionLimits(messages_per_s=1, burst=1, presence_per_s=1, now=0)
    for _ in range(limits.MAX_REFUSALS + 2):
        limits.message(0)
    assert limits.is_hopeless
    assert limits.message(10) == 0 and not limits.is_hopeless


def test_large_messages_are_paid_for_by_a_pause_and_small_ones_are_not():
    limits = ConnectionLimits(messages_per_s=200, burst=600, presence_per_s=1, now=0)
    assert [limits.pause_s(1_000, 0) for _ in range(600)] == [0] * 600
    large = 256 * 1024
    pauses = [limits.pause_s(large, 0) for _ in range(20)]
    assert pauses[0] == 0 and pauses[-1] == limits.LONGEST_PAUSE_S
    assert limits.pause_s(large, 60) == 0
