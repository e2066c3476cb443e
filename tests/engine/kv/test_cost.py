"""Reading wins until it was measured to lose, and gets another chance now and then."""

from engine.kv.cost import RETRY_EVERY, Costs

MB = 1 << 20


def measured(read_mb_per_s, tokens_per_s):
    costs = Costs()
    costs.note_read(read_mb_per_s * MB, 1.0)
    costs.note_computed(tokens_per_s, 1.0)
    return costs


def test_without_measurements_reading_is_believed_in():
    costs = Costs()
    assert costs.should_read(1 << 40, 1)
    costs.note_read(MB, 1.0)
    assert costs.should_read(1 << 40, 1)


def test_the_faster_way_is_taken():
    # 23,040 bytes a token at 3,400 tokens/s: 78 MB/s is the break-even.
    assert measured(100, 3400).should_read(1000 * 23_040, 1000)
    assert not measured(60, 3400).should_read(1000 * 23_040, 1000)


def test_a_disk_that_was_slow_is_tried_again():
    costs = measured(1, 3400)
    tried = [costs.should_read(1000 * 23_040, 1000) for _ in range(2 * RETRY_EVERY)]
    assert tried.count(True) == 2
    for _ in range(40):
        costs.note_read(1000 * MB, 1.0)
    assert costs.should_read(1000 * 23_040, 1000)


def test_one_odd_measurement_does_not_decide():
    costs = measured(2000, 3400)
    costs.note_read(MB, 1.0)
    assert costs.should_read(1000 * 23_040, 1000)


def test_nothing_and_tiny_reads_measure_nothing():
    costs = Costs()
    costs.note_read(100, 5.0)
    costs.note_computed(0, 1.0)
    costs.note_computed(5, 0.0)
    assert costs.read_bytes_per_s == costs.tokens_per_s == 0
