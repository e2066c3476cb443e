import numpy as np
import pytest

from engine.api import Speech
from engine.perception.sound import RATE
from engine.perception.speech import WINDOW, Recogniser, Segmenter, without_repeats
from engine.perception.wire import Listen, Listened
from tests.support.spoken import TEXTS, samples, speech_model, word_error_rate


def cut(chances, start=0):
    segmenter = Segmenter(start)
    found = [segmenter.take(chance) for chance in chances]
    return [one for one in (*found, segmenter.finish()) if one is not None]


def windows(seconds):
    return round(seconds * RATE / WINDOW)


def test_L23_an_utterance_begins_before_its_onset_was_certain():
    (start, stop), *others = cut([0.0] * windows(2) + [0.9] * windows(1) + [0.0] * windows(2))
    assert not others
    assert start == pytest.approx((2.0 - 0.3) * RATE, abs=WINDOW)
    assert stop == pytest.approx((3.0 + 0.2) * RATE, abs=WINDOW)


def test_a_pause_inside_a_sentence_does_not_end_it_and_a_click_is_none():
    pause = [0.9] * windows(1) + [0.0] * windows(0.4) + [0.9] * windows(1)
    assert len(cut(pause + [0.0] * windows(1))) == 1
    assert len(cut([0.9] * windows(1) + [0.0] * windows(0.8) + [0.9] * windows(1))) == 2
    assert cut([0.0] * windows(1) + [0.9] * 3 + [0.0] * windows(1)) == []


def test_a_long_speech_is_cut_where_it_is_quietest_and_nothing_is_lost():
    chances = [0.9] * windows(40)
    chances[windows(20)] = 0.4
    first, second = cut(chances)
    assert first[1] == second[0] == pytest.approx(20 * RATE, abs=2 * WINDOW)
    assert (first[0], second[1]) == (0, windows(40) * WINDOW)


def test_two_utterances_never_share_a_sample():
    chances = ([0.9] * windows(0.5) + [0.0] * windows(0.65)) * 20
    found = cut(chances)
    assert len(found) == 20
    assert all(before[1] <= after[0] for before, after in zip(found, found[1:], strict=False))


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("thank you. Thank you, thank you thank you", "thank you."),
        ("The dose is 5 mg. " * 4 + "Yes.", "The dose is 5 mg. Yes."),
        ("no, no, no", "no, no, no"),
        ("Fail again. Fail better.", "Fail again. Fail better."),
        ("", ""),
    ],
)
def test_M5_a_phrase_that_never_ends_is_written_once(said, kept):
    assert without_repeats(said) == kept


# -- the model itself ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recogniser():
    return Recogniser(str(speech_model()), 2)


class Item:
    """One recording in a file, listened to piece by piece."""

    def __init__(self, folder, name, pcm):
        self.path = folder / f"{name}.s16"
        self.path.write_bytes(pcm.astype("<i2").tobytes())
        self.name, self.total, self.at, self.settled = name, len(pcm), 0, 0
        self.said = []

    def listen(self, recogniser, piece=RATE):
        stop = min(self.total, self.at + piece)
        request = Listen(
            media=self.name,
            samples=str(self.path),
            settled=self.settled,
            start=self.at,
            stop=stop,
            utterances=len(self.said),
            is_last=stop == self.total,
            cpu_s=60,
        )
        for answer in recogniser.listen(request):
            if isinstance(answer, Speech):
                self.said.append(answer)
            elif isinstance(answer, Listened):
                self.at, self.settled = answer.position, answer.settled
        return stop < self.total

    @property
    def text(self):
        return " ".join(one.text for one in self.said)


def spoken_at_16k(name):
    pcm, rate = samples(name)
    assert rate == RATE
    return pcm


@pytest.mark.model
def test_L43_one_recogniser_hears_many_items_and_mixes_nothing(recogniser, tmp_path):
    pcm = spoken_at_16k("beckett")
    items = [Item(tmp_path, f"m{n}", np.pad(pcm, (n * 700, 0))) for n in range(3)]
    going = [True]
    while any(going):
        going = [item.listen(recogniser) for item in items]
    for item in items:
        assert word_error_rate(TEXTS["beckett"], item.text) <= 0.15
        assert [one.id for one in item.said] == [f"{item.name}.speech.{n}" for n in range(1, 7)]


@pytest.mark.model
def test_M5_no_words_where_nobody_spoke(recogniser, tmp_path):
    noise = np.random.default_rng(7)
    time = np.arange(30 * RATE) / RATE
    quiet = {
        "silence": np.zeros(30 * RATE),
        "white": noise.normal(0, 2_000, 30 * RATE),
        "hum": 6_000 * np.sin(2 * np.pi * 50 * time),
    }
    for name, sound in quiet.items():
        item = Item(tmp_path, name, sound)
        while item.listen(recogniser):
            pass
        assert item.said == [], name


@pytest.mark.model
def test_M5_times_stay_those_of_the_recording_across_a_long_silence(recogniser, tmp_path):
    pcm = spoken_at_16k("beckett")
    gap = np.zeros(20 * RATE, "<i2")
    item = Item(tmp_path, "gap", np.concatenate([pcm, gap, pcm]))
    while item.listen(recogniser):
        pass
    assert word_error_rate(f"{TEXTS['beckett']} {TEXTS['beckett']}", item.text) <= 0.15
    starts = [one.start_s for one in item.said]
    assert len(starts) == 12
    shift = len(pcm) / RATE + 20
    assert [b - a for a, b in zip(starts[:6], starts[6:], strict=True)] == pytest.approx(
        [shift] * 6, abs=0.1
    )


@pytest.mark.model
def test_a_recogniser_that_takes_over_begins_where_the_utterance_did(recogniser, tmp_path):
    """The first one is lost in the middle of "Ever tried": its words are not."""
    item = Item(tmp_path, "taken", spoken_at_16k("beckett"))
    item.listen(recogniser, piece=RATE)
    assert item.said == [] and item.settled < RATE // 2
    other = Recogniser(str(speech_model()), 2)
    while item.listen(other):
        pass
    assert word_error_rate(TEXTS["beckett"], item.text) <= 0.15
