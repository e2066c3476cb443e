"""A room's state as the model is told it."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from engine import api
from protocol.room import RoomState
from protocol.shapes import Actor, Imaging, LabRow, Level, Rectangle, SpeechRow
from protocol.state import AssetState, TurnState
from server import conversation

MEI = Actor(id="mei", name="Mei", department="Radiology")
WU = Actor(id="wu", name="Wu")
HASH = "ab" * 32


def asset(
    name: str, status: str = "read", sha256: str | None = HASH, rows: tuple = ()
) -> AssetState:
    return AssetState(
        asset=name, name=f"{name}.png", by=MEI, status=status, sha256=sha256, rows=rows
    )


def turn(name: str, seq: int, text: str = "", by: Actor = MEI, **fields) -> TurnState:
    return TurnState(turn=name, question=f"{name}?", by=by, at=1, seq=seq, text=text, **fields)


def room(assets: list[AssetState], turns: list[TurnState]) -> RoomState:
    state = RoomState("e")
    state.assets = {each.asset: each for each in assets}
    state.turns = {each.turn: each for each in turns}
    return state


class Places:
    def original(self, sha256: str) -> Path:
        return Path("assets", sha256)

    def level(self, asset: str, level: int) -> Path:
        return Path("derived", asset, str(level))

    def sound(self, asset: str) -> Path:
        return Path("derived", asset, "sound.wav")


def said(state: RoomState, last: str, missing: tuple[str, ...] = ()):
    return conversation.messages(state, state.turns[last], missing, Places())


def test_a_picture_is_given_in_full_resolution_once_that_level_is_there():
    small = Level(level=64, width=64, height=48, media_type="image/webp")
    full = Level(level=0, width=640, height=480, media_type="image/png")
    whole = replace(asset("a"), levels=(small, full))
    state = room([whole, replace(asset("b"), levels=(small,))], [turn("t", 5, assets=("a", "b"))])
    assert [seen.pictures for seen in said(state, "t")[0].seen] == [("derived/a/0",), ()]
    assert said(state, "t", missing=("a",))[0].seen[0].pictures == ()


def test_what_may_sound_is_given_to_a_model_that_hears():
    assets = [
        replace(asset("a"), media_type="audio/webm"),
        replace(asset("b"), media_type="video/mp4"),
        replace(asset("c"), media_type="image/png"),
    ]
    state = room(assets, [turn("t", 5, assets=("a", "b", "c"))])
    sounds = [seen.sounds for seen in said(state, "t")[0].seen]
    assert sounds == [("derived/a/sound.wav",), ("derived/b/sound.wav",), ()]
    assert said(state, "t", missing=("a",))[0].seen[0].sounds == ()


def test_people_are_called_by_name_and_department():
    assert conversation.speaker(MEI) == "Mei (Radiology)"
    assert conversation.speaker(WU) == "Wu"


def test_a_picture_stands_with_the_first_question_that_had_it():
    state = room(
        [asset("a"), asset("b")],
        [turn("t1", 1, "one", assets=("a",)), turn("t2", 2, assets=("a", "b"))],
    )
    messages = said(state, "t2")
    assert [m.role for m in messages] == ["user", "assistant", "user"]
    assert [[s.media for s in m.seen] for m in messages] == [["a"], [], ["b"]]
    assert messages[1].turn == "t1" and messages[1].text == "one"


def test_a_picture_that_was_missing_comes_with_the_next_question():
    state = room(
        [asset("a")],
        [turn("t1", 1, "blind", assets=("a",), missing=("a",)), turn("t2", 2, assets=("a",))],
    )
    messages = said(state, "t2")
    assert [[s.missing for s in m.seen] for m in messages] == [[True], [], [False]]


def test_a_question_without_an_answer_is_left_out_and_half_an_answer_stays():
    state = room(
        [],
        [
            turn("t1", 1, status="failed"),
            turn("t2", 2, "half", status="cancelled"),
            turn("t3", 3, by=WU),
        ],
    )
    assert [m.text for m in said(state, "t3")] == ["t2?", "half", "t3?"]


def test_what_comes_after_the_question_is_not_part_of_it():
    state = room([], [turn("t1", 1), turn("t2", 2, "later")])
    assert [m.text for m in said(state, "t1")] == ["t1?"]


def test_failed_and_unfinished_pictures_are_not_shown():
    state = room(
        [asset("a", "failed"), asset("b", "open", None)], [turn("t1", 1, assets=("a", "b", "gone"))]
    )
    assert said(state, "t1")[0].seen == ()
    assert conversation.unseen(state, ("a", "b", "gone")) == ("b",)


def test_the_rows_that_were_read_go_to_the_model_as_they_were():
    row = LabRow(
        id="a.lab.1",
        box=Rectangle(x=1, y=2, width=3, height=4),
        analyte="Glucose",
        value="11.2",
        unit="mmol/L",
        range="3.9-6.1",
        flag="high",
        cells={"value": Rectangle(x=1, y=2, width=1, height=1)},
    )
    state = room([asset("a", rows=(row,))], [turn("t1", 1, assets=("a",))])
    (seen,) = said(state, "t1")[0].seen
    assert seen.lab_rows[0].value == "11.2" and seen.lab_rows[0].cells["value"].x == 1
    assert said(state, "t1", missing=("a",))[0].seen[0].lab_rows == ()


def test_a_question_about_nothing_in_particular_is_about_the_newest_pictures():
    state = room([asset(f"a{n}") for n in range(40)] + [asset("bad", "failed")], [])
    chosen = conversation.assets_of_question(state, ())
    assert len(chosen) == conversation.MAX_ASSETS and chosen[-1] == "a39"
    assert conversation.assets_of_question(state, ("a1",)) == ("a1",)


def test_a_medical_series_is_told_with_its_frames():
    series = replace(asset("a"), frames=30, imaging=Imaging(modality="US", color=True))
    (message,) = said(room([series], [turn("t1", 1, assets=("a",))]), "t1")
    (seen,) = message.seen
    assert (seen.frames, seen.imaging) == (30, api.Imaging(modality="US", color=True))


def test_an_open_microphone_is_not_waited_for_and_what_it_said_is_told_when_it_is_closed():
    said_in_it = (SpeechRow(id="u1", start=0.5, end=2.0, text="The potassium is low."),)
    closed = replace(asset("m", rows=said_in_it), kind="microphone")
    still_open = replace(closed, status="open", sha256=None)
    assert conversation.assets_of_question(room([asset("a"), still_open], []), ()) == ("a",)
    state = room([asset("a"), closed], [turn("t1", 1, assets=("a", "m"))])
    assert conversation.assets_of_question(state, ()) == ("a", "m")
    (message,) = said(state, "t1")
    assert [s.text for seen in message.seen for s in seen.speech] == ["The potassium is low."]
