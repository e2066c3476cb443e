"""What counts as standing and as reviewed, and which picture a mark is on."""

import pytest
from msgspec.structs import replace

from protocol.shapes import Actor, Target
from server.export import case as c
from tests.support import cases


def test_deleted_marks_and_those_on_failed_assets_are_left_out():
    shape = cases.SHAPES["point"]
    room = cases.room(
        cases.photo(),
        cases.photo("broken", status="failed"),
        marks=(
            cases.mark("here", shape),
            cases.mark("gone", shape, deleted=True),
            cases.mark("lost", shape, "broken"),
            cases.mark("nowhere", shape, "never"),
        ),
    )
    assert [mark.annotation.id for mark, _ in c.standing_marks(room)] == ["here"]
    assert [asset.asset for asset in c.standing_assets(room)] == ["photo"]


def test_comments_are_found_by_what_they_are_about():
    about = cases.comment("see", Target(asset="photo"), "c2")
    room = cases.room(cases.photo(), comments=(cases.comment("hello"), about))
    assert [each.id for each in c.comments_on(room, "photo")] == ["c2"]
    assert [each.id for each in c.comments_on(room, None)] == ["c1"]


@pytest.mark.parametrize(
    ("by", "unreviewed"),
    [(cases.MEI, False), (cases.MODEL, True), (Actor(id="s", name="s", kind="system"), True)],
)
def test_only_what_a_person_made_is_not_unreviewed(by, unreviewed):
    assert c.is_unreviewed(by) is unreviewed


@pytest.mark.parametrize(
    ("asset", "frame", "ends_with"),
    [
        (cases.photo(), 0, "/assets/photo/levels/0"),
        (cases.series(), 27, "/assets/series/frames/27"),
        (cases.series(frames=1), 0, "/assets/series/levels/0"),
        (cases.video(), 3, "/assets/film/frames/3"),
        (cases.photo("tape", width=0, height=0), 0, "/assets/tape/original"),
    ],
)
def test_a_mark_is_on_the_picture_in_whose_pixels_it_is_given(asset, frame, ends_with):
    address = c.frame_address(cases.room(asset), asset, Target(asset=asset.asset, frame=frame))
    assert address == f"http://house.example/v1/rooms/ward-7{ends_with}"


def test_a_still_of_another_size_than_its_video_has_its_own():
    film = cases.video()
    small = replace(film.keyframes[1], width=40, height=60)
    film = replace(film, keyframes=(film.keyframes[0], small))
    assert c.frame_size(film, 3) == (40, 60)
    assert c.frame_size(film, 99) == (80, 120)


def test_times_are_utc_to_the_millisecond():
    assert c.moment(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"


def test_a_file_that_is_gone_is_empty(tmp_path):
    assert c.read("") == b"" and c.read(str(tmp_path / "gone")) == b""
    (tmp_path / "here").write_bytes(b"x")
    assert c.read(str(tmp_path / "here")) == b"x"
