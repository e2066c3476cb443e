"""Rooms to export: pictures of every kind, every shape on them, by people and by the model."""

from __future__ import annotations

from typing import Any

from protocol.shapes import (
    Actor,
    Annotation,
    Ellipse,
    Imaging,
    Keyframe,
    LabRow,
    Level,
    Point,
    PointMark,
    Polygon,
    Polyline,
    Rectangle,
    Target,
)
from protocol.state import AnnotationState, AssetState, CommentState, Snapshot, TurnState
from server.export.case import Case, Files

MEI = Actor(id="p-mei", name="Mei <Li>", department="Radiology")
MODEL = Actor(id="model", name="Consilium", kind="model")
AT = 1_700_000_000_000

SHAPES = {
    "rectangle": Rectangle(x=10.25, y=20.5, width=33.333, height=12.125),
    "ellipse": Ellipse(x=40.1, y=8.7, width=21.9, height=50.3),
    "point": PointMark(x=17.77, y=91.31),
    "polyline": Polyline(points=(Point(1.5, 2.25), Point(60.75, 3.125), Point(61, 70.01))),
    "polygon": Polygon(points=(Point(5, 5), Point(55.5, 9.25), Point(30.123, 88.877))),
}


def photo(asset: str = "photo", **changes: Any) -> AssetState:
    """A photo of 80 x 120 upright pixels; its file may well be 120 x 80 with an orientation."""
    known: dict[str, Any] = {
        "name": "wound & <b>.jpg",
        "by": MEI,
        "status": "read",
        "media_type": "image/jpeg",
        "width": 80,
        "height": 120,
        "sha256": "ab" * 32,
        "size": 9,
        "levels": (Level(level=0, width=80, height=120, media_type="image/jpeg"),),
    }
    return AssetState(asset=asset, **known | changes)


def series(asset: str = "series", frames: int = 30, **changes: Any) -> AssetState:
    """A medical image of 80 x 120 pixels and several frames."""
    known: dict[str, Any] = {
        "name": "series.dcm",
        "media_type": "application/dicom",
        "frames": frames,
        "imaging": Imaging(modality="CT"),
    }
    return photo(asset, **known | changes)


def video(asset: str = "film") -> AssetState:
    """A video with two stills."""
    stills = tuple(Keyframe(frame=n, pts_us=n * 1_500_000, width=80, height=120) for n in (0, 3))
    return photo(
        asset, name="f.mp4", media_type="video/mp4", levels=(), keyframes=stills, duration_s=6.0
    )


def mark(
    mark_id: str,
    shape: Any,
    asset: str = "photo",
    *,
    by: Actor = MEI,
    seq: int = 5,
    frame: int = 0,
    pts_us: int | None = None,
    deleted: bool = False,
    **fields: Any,
) -> AnnotationState:
    """A mark as the room's state has it."""
    target = Target(asset=asset, frame=frame, pts_us=pts_us)
    annotation = Annotation(id=mark_id, target=target, shape=shape, **fields)
    return AnnotationState(annotation=annotation, by=by, seq=seq, changed_seq=seq, deleted=deleted)


def comment(text: str, target: Target | None = None, comment_id: str = "c1") -> CommentState:
    """What somebody said."""
    return CommentState(id=comment_id, text=text, by=MEI, at=AT, seq=9, target=target)


def lab_row(**changes: Any) -> LabRow:
    """A low sodium as it was read."""
    known: dict[str, Any] = {
        "id": "row-1",
        "box": SHAPES["rectangle"],
        "analyte": "Sodium",
        "value": "128",
        "unit": "mmol/L",
        "range": "135-145",
        "flag": "low",
        "number": 128.0,
        "low": 135.0,
        "high": 145.0,
    }
    return LabRow(**known | changes)


def answered(text: str = "The sodium is low.") -> TurnState:
    """A question that the model answered."""
    return TurnState(
        turn="t1",
        question="What is <wrong>?",
        by=MEI,
        at=AT,
        seq=7,
        status="done",
        text=text,
        model="smollm2-135m",
        sight="text",
    )


def room(
    *assets: AssetState,
    marks: tuple[AnnotationState, ...] = (),
    comments: tuple[CommentState, ...] = (),
    turns: tuple[TurnState, ...] = (),
    files: dict[str, Files] | None = None,
    may_identify: bool = False,
) -> Case:
    """A room of these; each event of number n happened n seconds after `AT`."""
    snapshot = Snapshot(
        seq=40,
        epoch="e1",
        assets=assets,
        annotations=marks,
        comments=comments,
        turns=turns,
    )
    times = {seq: AT + seq * 1000 for seq in range(1, 41)}
    return Case(
        room="ward-7",
        base="http://house.example/",
        at=AT + 60_000,
        snapshot=snapshot,
        times=times,
        files=files or {},
        may_identify=may_identify,
    )


def every_shape(asset: str = "photo", **fields: Any) -> tuple[AnnotationState, ...]:
    """One mark of each shape, named and labelled after it."""
    return tuple(
        mark(f"m-{name}", shape, asset, label=f"a {name}", **fields)
        for name, shape in SHAPES.items()
    )
