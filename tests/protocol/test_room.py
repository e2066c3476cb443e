"""The reducer: any order of joining, any repetition, the same state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import events as ev
from protocol.codec import number
from protocol.errors import ErrorCode, OpRefused
from protocol.messages import (
    AddComment,
    DeleteAnnotation,
    PatchAnnotation,
    PutAnnotation,
    RestoreAnnotation,
)
from protocol.room import MAX_KEYFRAMES, EventGap, RoomState, apply, draft_event
from protocol.shapes import (
    Actor,
    Annotation,
    Keyframe,
    Level,
    Rectangle,
    SpanLink,
    Target,
    TextRow,
)
from protocol.state import Snapshot

WU = Actor(id="p-wu", name="Wu", department="Radiology")
MODEL = Actor(id="model", name="Model", kind="model")
BOX = Rectangle(x=1, y=2, width=30, height=40)


def mark(mark_id="m1", asset="a1", label=""):
    return Annotation(id=mark_id, target=Target(asset=asset), shape=BOX, label=label)


class Room:
    """A room that numbers what it is given."""

    def __init__(self, *, committed=True):
        self.state, self.events = RoomState("e1"), []
        self.add(ev.AssetOpened(at=1, actor=WU, asset="a1", name="sheet.png"))
        if committed:
            self.add(ev.AssetCommitted(at=2, actor=WU, asset="a1", size=9, sha256="0" * 64))

    def add(self, event):
        numbered = number(event, self.state.seq + 1, "e1")
        apply(self.state, numbered)
        self.events.append(numbered)

    def do(self, op, actor=WU):
        self.add(draft_event(self.state, op, actor, at=5, op_id=f"o{self.state.seq}"))


def replay(events, start=None):
    state = RoomState.from_snapshot(start) if start else RoomState("e1")
    for event in events:
        apply(state, event)
    return state


def test_an_event_folds_once_however_often_it_comes():
    room = Room()
    assert not apply(room.state, room.events[-1])
    assert room.state.hash() == replay([e for e in room.events for _ in range(2)]).hash()


def test_a_missing_event_is_told_and_changes_nothing():
    room = Room()
    before = room.state.hash()
    with pytest.raises(EventGap):
        apply(room.state, number(room.events[0], room.state.seq + 2, "e1"))
    with pytest.raises(EventGap):
        apply(room.state, number(room.events[0], room.state.seq + 1, "e2"))
    assert room.state.hash() == before


def test_the_last_writer_of_each_property_wins():
    room = Room()
    room.do(PutAnnotation(annotation=mark(label="first")))
    room.do(PatchAnnotation(id="m1", label="second"))
    room.do(PatchAnnotation(id="m1", shape=Rectangle(x=0, y=0, width=5, height=5)))
    kept = room.state.annotations["m1"].annotation
    assert kept.label == "second"
    assert kept.shape == Rectangle(x=0, y=0, width=5, height=5)


def test_R63_a_delete_wins_and_the_late_edit_is_told():
    room = Room()
    room.do(PutAnnotation(annotation=mark()))
    room.do(DeleteAnnotation(id="m1"))
    with pytest.raises(OpRefused) as refused:
        room.do(PatchAnnotation(id="m1", label="late"))
    assert refused.value.code == ErrorCode.ANNOTATION_DELETED
    assert room.state.annotations["m1"].deleted


def test_a_restored_mark_is_as_it_was():
    room = Room()
    room.do(PutAnnotation(annotation=mark(label="kept")))
    room.do(DeleteAnnotation(id="m1"))
    room.do(RestoreAnnotation(id="m1"))
    assert not room.state.annotations["m1"].deleted
    assert room.state.annotations["m1"].annotation.label == "kept"


@pytest.mark.parametrize(
    ("op", "code"),
    [
        (PutAnnotation(annotation=mark(asset="elsewhere")), ErrorCode.ASSET_UNKNOWN),
        (PatchAnnotation(id="none", label="x"), ErrorCode.ANNOTATION_UNKNOWN),
        (DeleteAnnotation(id="none"), ErrorCode.ANNOTATION_UNKNOWN),
        (RestoreAnnotation(id="none"), ErrorCode.ANNOTATION_UNKNOWN),
        (AddComment(id="c", text="x", target=Target(asset="elsewhere")), ErrorCode.ASSET_UNKNOWN),
    ],
)
def test_an_op_on_what_is_not_here_is_refused(op, code):
    with pytest.raises(OpRefused) as refused:
        Room().do(op)
    assert refused.value.code == code


def test_R65_a_mark_needs_a_committed_asset():
    room = Room(committed=False)
    with pytest.raises(OpRefused) as refused:
        room.do(PutAnnotation(annotation=mark()))
    assert refused.value.code == ErrorCode.ASSET_NOT_READY


def test_an_id_is_never_taken_twice():
    room = Room()
    room.do(PutAnnotation(annotation=mark()))
    room.do(AddComment(id="c1", text="hello"))
    for op in (PutAnnotation(annotation=mark()), AddComment(id="c1", text="again")):
        with pytest.raises(OpRefused) as refused:
            room.do(op)
        assert refused.value.code == ErrorCode.OP_CONFLICT


def test_a_failed_asset_withdraws_what_was_observed_and_the_models_marks():
    room = Room()
    row = TextRow(id="r1", box=BOX, text="Glucose", score=0.9)
    level = Level(level=16, width=16, height=8, media_type="image/webp")
    room.add(ev.AssetLevel(at=3, actor=MODEL, asset="a1", level=level))
    room.add(ev.AssetObserved(at=3, actor=MODEL, asset="a1", rows=(row,)))
    room.do(PutAnnotation(annotation=mark("by-model")), actor=MODEL)
    room.do(PutAnnotation(annotation=mark("by-wu")))
    room.add(
        ev.AssetFailed(at=4, actor=MODEL, asset="a1", code=ErrorCode.MEDIA_CORRUPT, message="bad")
    )
    asset = room.state.assets["a1"]
    assert (asset.status, asset.rows, asset.levels) == ("failed", (), ())
    assert room.state.annotations["by-model"].deleted
    assert not room.state.annotations["by-wu"].deleted


def test_a_look_that_was_repeated_names_its_rows_once():
    room = Room()
    for text in ("Gluc", "Glucose"):
        row = TextRow(id="r1", box=BOX, text=text, score=0.9)
        room.add(ev.AssetObserved(at=3, actor=MODEL, asset="a1", rows=(row,)))
    assert [row.text for row in room.state.assets["a1"].rows] == ["Glucose"]


def test_L08_a_turn_has_one_end_and_nothing_after_it():
    room = Room()
    room.add(ev.TurnStarted(at=3, actor=WU, turn="t1", question="why?"))
    room.add(ev.TurnDelta(at=4, actor=MODEL, turn="t1", offset=0, text="Be"))
    room.add(ev.TurnCancelled(at=5, actor=WU, turn="t1"))
    room.add(ev.TurnDelta(at=5, actor=MODEL, turn="t1", offset=2, text="cause"))
    link = SpanLink(start=0, end=2, asset="a1", observation="r1", box=BOX)
    room.add(ev.TurnAnnotation(at=5, actor=MODEL, turn="t1", link=link))
    turn = room.state.turns["t1"]
    assert (turn.status, turn.text, turn.links) == ("cancelled", "Be", ())
    assert room.state.running_turns() == []


OPS = st.one_of(
    st.builds(lambda i: PutAnnotation(annotation=mark(f"m{i}")), st.integers(0, 3)),
    st.builds(
        lambda i, label: PatchAnnotation(id=f"m{i}", label=label),
        st.integers(0, 3),
        st.text(alphabet="ab", max_size=3),
    ),
    st.builds(lambda i: DeleteAnnotation(id=f"m{i}"), st.integers(0, 3)),
    st.builds(lambda i: RestoreAnnotation(id=f"m{i}"), st.integers(0, 3)),
    st.builds(lambda i: AddComment(id=f"c{i}", text="x"), st.integers(0, 3)),
)


@given(st.lists(OPS, max_size=30), st.data())
def test_R40_a_snapshot_and_its_tail_equal_the_whole_history(ops, data):
    room = Room()
    snapshots: list[Snapshot] = [room.state.snapshot()]
    for op in ops:
        try:
            room.do(op)
        except OpRefused:
            continue
        snapshots.append(room.state.snapshot())
    start = data.draw(st.sampled_from(snapshots))
    assert replay(room.events, start).hash() == room.state.hash() == replay(room.events).hash()


def test_a_camera_keeps_its_newest_keyframes_with_what_was_read_on_them():
    """One that runs for hours keeps the state as large as one that ran for ten minutes."""
    room = Room(committed=False)
    people = Actor(id="p-wu", name="Wu")

    def show(frame, like=None):
        still = Keyframe(frame=frame, pts_us=frame * 1_000_000, width=9, height=9, like=like)
        room.add(ev.AssetKeyframe(at=1, actor=MODEL, asset="a1", keyframe=still))

    def read(frame):
        row = TextRow(id=f"r{frame}", box=BOX, text="x", score=1, frame=frame, pts_us=frame)
        room.add(ev.AssetObserved(at=1, actor=MODEL, asset="a1", rows=(row,)))
        for by in (MODEL, people):
            target = Target(asset="a1", frame=frame)
            put = Annotation(id=f"{by.id}{frame}", target=target, shape=BOX)
            room.add(ev.AnnotationPut(at=1, actor=by, annotation=put))

    for frame in range(MAX_KEYFRAMES + 3):
        # Number 2 stands still: what follows it shows the same, up to number 5.
        show(frame, like=2 if 2 < frame <= 5 else None)
        if frame in (0, 1, 2, 6, MAX_KEYFRAMES + 2):
            read(frame)
    asset = room.state.assets["a1"]
    assert [k.frame for k in asset.keyframes] == list(range(3, MAX_KEYFRAMES + 3))
    # Row 2 is that of keyframes 3 to 5, which are still there.
    assert [row.id for row in asset.rows] == ["r2", "r6", f"r{MAX_KEYFRAMES + 2}"]
    assert {"model0", "model1"}.isdisjoint(room.state.annotations)
    # What a person marked is never thrown away.
    assert {"p-wu0", "p-wu1", "model2"} <= set(room.state.annotations)


def test_a_still_of_an_open_camera_can_be_marked_and_an_open_upload_cannot():
    room = Room(committed=False)
    op = PutAnnotation(annotation=mark())
    with pytest.raises(OpRefused) as refusal:
        draft_event(room.state, op, WU, 1, "o1")
    assert refusal.value.code == ErrorCode.ASSET_NOT_READY
    still = Keyframe(frame=0, pts_us=0, width=9, height=9)
    room.add(ev.AssetKeyframe(at=1, actor=MODEL, asset="a1", keyframe=still))
    assert isinstance(draft_event(room.state, op, WU, 1, "o1"), ev.AnnotationPut)
