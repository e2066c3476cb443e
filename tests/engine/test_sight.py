"""Pictures of waiting turns: kept within a budget, one failure never the turn's."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from engine.api import Message, Seen, Turn
from engine.models.layout import Features, Picture, Sound
from engine.sight import Sight, by_kind


class CountingEyes:
    """Makes 1,000 bytes of features a file, and counts how often it had to."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def look(self, path: str) -> Picture:
        self.gate.wait(10)
        self.looked.append(Path(path).name)
        if b"broken" in Path(path).read_bytes():
            raise OSError("broken")
        return Picture(path.encode(), (9,) * 250, 9, Features(torch.zeros(250, 1)))


@pytest.fixture
def eyes() -> CountingEyes:
    return CountingEyes()


@pytest.fixture
def sight(eyes):
    made = Sight(eyes, cache_bytes=2_500, max_pictures=3)
    yield made
    eyes.gate.set()
    made.stop()


@pytest.fixture
def turn(tmp_path):
    def make(*names: str, content: bytes = b"x") -> Turn:
        for name in names:
            (tmp_path / name).write_bytes(content)
        seen = tuple(
            Seen(
                media=name,
                name=name,
                path="",
                media_type="image/png",
                width=1,
                height=1,
                pictures=(str(tmp_path / name),),
            )
            for name in names
        )
        message = Message(role="user", text="?", seen=seen)
        return Turn(id="t", session="s", tenant="t", messages=(message,))

    return make


def looked(sight: Sight, turn: Turn) -> set[str]:
    done = threading.Event()
    future = sight.look(turn, done.set)
    assert future is not None
    result = set(future.result(10))
    assert done.wait(10)
    return result


def test_a_turn_without_pictures_waits_for_nothing(sight, turn):
    assert sight.look(turn(), lambda: None) is None


def test_the_second_question_about_a_picture_computes_nothing(sight, eyes, turn):
    asked = turn("a")
    assert looked(sight, asked) == looked(sight, asked) == {"a"}
    assert eyes.looked == ["a"]
    assert sight.counters == {"pictures_encoded": 1, "picture_hits": 1}


def test_the_least_recently_used_features_go_first_and_the_budget_holds(sight, eyes, turn):
    a, b, c = turn("a"), turn("b"), turn("c")
    for asked in (a, b, a, c):
        looked(sight, asked)
        assert sight.kept_bytes <= 2_500
    looked(sight, a)
    looked(sight, b)
    assert eyes.looked == ["a", "b", "c", "b"]


def test_E51_only_the_newest_pictures_are_given_when_there_are_too_many(sight, turn):
    assert looked(sight, turn("a", "b", "c", "d")) == {"b", "c", "d"}


def test_a_file_that_is_not_there_takes_no_others_place(sight, turn, tmp_path):
    asked = turn("a", "b", "c", "d")
    for name in ("c", "d"):
        (tmp_path / name).unlink()
    assert looked(sight, asked) == {"a", "b"}


def test_a_broken_or_missing_file_is_left_out_and_counted(sight, turn, tmp_path):
    asked = turn("gone", "bad", content=b"broken")
    (tmp_path / "gone").unlink()
    assert looked(sight, asked) == set()
    assert sight.counters == {"pictures_failed": 1, "pictures_missing": 1}
    # What failed is tried again: the file may have been on its way.
    (tmp_path / "bad").write_bytes(b"whole now")
    assert looked(sight, asked) == {"bad"}


def test_a_file_that_changed_is_looked_at_again(sight, eyes, turn, tmp_path):
    asked = turn("a")
    looked(sight, asked)
    (tmp_path / "a").write_bytes(b"another picture")
    looked(sight, asked)
    assert eyes.looked == ["a", "a"]


@pytest.mark.parametrize(
    ("patience_s", "order"),
    [(60.0, ["first", "small", "large"]), (0.0, ["first", "large", "small"])],
    ids=["small ones go first", "what waited long goes first"],
)
def test_what_waits_is_looked_at_in_an_order(sight, eyes, turn, monkeypatch, patience_s, order):
    monkeypatch.setattr("engine.sight.PATIENCE_S", patience_s)
    eyes.gate.clear()
    first = sight.look(turn("first"), lambda: None)
    while not first.running():
        time.sleep(0.001)
    large, small = turn("large", content=b"x" * 900), turn("small", content=b"x" * 90)
    waiting = [sight.look(asked, lambda: None) for asked in (large, small)]
    eyes.gate.set()
    assert all(future.result(10) for future in waiting)
    assert eyes.looked == order


def test_stopping_ends_what_waits_and_tells_who_waits(sight, eyes, turn):
    eyes.gate.clear()
    told = threading.Event()
    sight.look(turn("a"), lambda: None)
    waiting = sight.look(turn("b"), told.set)
    threading.Timer(0.1, eyes.gate.set).start()
    sight.stop()
    assert waiting is not None and told.wait(10)
    with pytest.raises(CancelledError):
        waiting.result(0)


def test_a_question_that_brings_pictures_is_work_on_pictures(turn):
    assert by_kind(turn("a")).kind == "image"
    assert by_kind(turn()).kind == "text"
    asked = turn("a")
    video = replace(asked.messages[0].seen[0], duration_s=2.0)
    filmed = replace(asked, messages=(replace(asked.messages[0], seen=(video,)),))
    assert by_kind(filmed).kind == "video"
    assert by_kind(replace(filmed, kind="background")).kind == "background"
    # A picture that was shown with an earlier question is known by now.
    again = (*asked.messages, Message(role="user", text="And?"))
    assert by_kind(replace(asked, messages=again)).kind == "text"


def test_E53_features_that_a_turn_waits_for_outlive_their_place_in_the_cache(sight, turn):
    """Each picture is 1,000 bytes of a cache of 2,500; the turn has three of them."""
    asked = turn("a", "b", "c")
    future = sight.look(asked, lambda: None)
    for name in ("d", "e", "f"):
        looked(sight, turn(name))
    assert set(future.result(10)) == {"a", "b", "c"}
    assert all(pictures[0].features.rows.shape == (250, 1) for pictures in future.result().values())
    assert sight.kept_bytes <= 2_500


def test_E52_E58_pictures_are_prepared_by_one_thread_and_each_once(sight, eyes, turn):
    """A processor is not made for several threads; and who asks at once shares what is made."""
    threads = set()
    look = eyes.look

    def noting(path):
        threads.add(threading.current_thread().name)
        return look(path)

    eyes.look = noting
    asked = turn("a", "b")
    futures = [sight.look(asked, lambda: None) for _ in range(20)]
    assert all(set(future.result(10)) == {"a", "b"} for future in futures)
    assert len(threads) == 1 and sorted(eyes.looked) == ["a", "b"]


class CountingEars:
    """Makes four bytes of features a file, and counts how often it had to."""

    def __init__(self) -> None:
        self.listened: list[str] = []

    def listen(self, path: str) -> Sound:
        self.listened.append(Path(path).name)
        return Sound(path.encode(), (8,), 8, Features(torch.zeros(1, 1)), frames=4)


def spoken(turn: Turn, path: Path) -> Turn:
    """The same turn, its first media item with a recording of its own."""
    path.write_bytes(b"x")
    [message] = turn.messages
    seen = (replace(message.seen[0], sounds=(str(path),)), *message.seen[1:])
    return replace(turn, messages=(replace(message, seen=seen),))


def test_a_recording_stands_behind_the_pictures_of_its_video_and_is_kept_like_them(
    eyes, turn, tmp_path
):
    ears = CountingEars()
    sight = Sight(eyes, cache_bytes=2_500, max_pictures=3, ears=ears)
    asked = spoken(turn("a", "b"), tmp_path / "a.wav")
    for _ in range(2):
        made = sight.look(asked, lambda: None).result(10)
    sight.stop()
    assert [type(part) for part in made["a"]] == [Picture, Sound] and len(made["b"]) == 1
    assert eyes.looked == ["a", "b"] and ears.listened == ["a.wav"] and sight.hears


def test_a_model_without_ears_is_given_no_recording(sight, eyes, turn, tmp_path):
    silent = spoken(turn("a"), tmp_path / "a.wav")
    assert sight.look(silent, lambda: None).result(10).keys() == {"a"}
    [message] = silent.messages
    only = replace(message.seen[0], pictures=())
    silent = replace(silent, messages=(replace(message, seen=(only,)),))
    assert sight.look(silent, lambda: None) is None and not sight.hears
    assert by_kind(silent).kind == "text" and by_kind(silent, hears=True).kind == "image"
