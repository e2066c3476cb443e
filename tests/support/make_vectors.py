"""Write tests/vectors/room_history.json: histories of rooms and the states they must give.

    python tests/support/make_vectors.py

The events are written here by hand; the states come from the reducer and are to be read by a
person before they are committed, because from then on they judge the reducer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from protocol import events as ev  # noqa: E402
from protocol.codec import decode_event, encode, number  # noqa: E402
from protocol.errors import ErrorCode  # noqa: E402
from protocol.room import EventGap, RoomState, apply  # noqa: E402
from protocol.shapes import (  # noqa: E402
    Actor,
    Annotation,
    Imaging,
    Keyframe,
    LabRow,
    Level,
    Point,
    PointMark,
    Polygon,
    Rectangle,
    Spacing,
    Span,
    SpanLink,
    SpeechRow,
    Target,
    TextRow,
)
from protocol.state import Snapshot  # noqa: E402

MEI = Actor(id="p-mei", name="Mei Lin", department="Radiology")
OTTO = Actor(id="p-otto", name="Otto", department="Nephrology")
MODEL = Actor(id="model", name="SmolLM2-135M-Instruct", kind="model")
SYSTEM = Actor(id="system", name="Consilium", kind="system")
AT = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def box(x: float, y: float, width: float, height: float) -> Rectangle:
    return Rectangle(x=x, y=y, width=width, height=height)


def opened(asset: str = "as-1", name: str = "sheet.png") -> ev.Event:
    return ev.AssetOpened(at=AT, actor=MEI, asset=asset, name=name, size=182_340)


def committed(asset: str = "as-1") -> ev.Event:
    return ev.AssetCommitted(at=AT, actor=MEI, asset=asset, size=182_340, sha256=SHA)


def keyframe(frame: int, pts_us: int, like: int | None = None) -> ev.AssetKeyframe:
    return ev.AssetKeyframe(
        at=AT,
        actor=MODEL,
        asset="as-1",
        keyframe=Keyframe(frame=frame, pts_us=pts_us, width=640, height=480, like=like),
    )


def put(mark: str, actor: Actor = MEI, asset: str = "as-1", x: float = 40.0) -> ev.Event:
    annotation = Annotation(
        id=mark, target=Target(asset=asset), shape=box(x, 60.5, 120, 30), label="nodule?"
    )
    return ev.AnnotationPut(at=AT, actor=actor, op_id=f"o-{mark}", annotation=annotation)


def delta(turn: str, offset: int, text: str, *spans: Span) -> ev.Event:
    return ev.TurnDelta(at=AT, actor=MODEL, turn=turn, offset=offset, text=text, spans=spans)


def started(turn: str, question: str, *assets: str) -> ev.Event:
    return ev.TurnStarted(
        at=AT, actor=OTTO, op_id=turn, turn=turn, question=question, assets=assets
    )


def prompted(turn: str, *missing: str) -> ev.Event:
    return ev.TurnPrompted(
        at=AT,
        actor=MODEL,
        turn=turn,
        model="SmolLM2-135M-Instruct",
        prompt_sha256=SHA,
        prompt_tokens=120,
        cached_tokens=0,
        sight="text",
        missing=missing,
    )


GLUCOSE = LabRow(
    id="row-2",
    box=box(10, 40, 380, 18),
    analyte="Glucose",
    value="11.2",
    unit="mmol/L",
    range="3.9-6.1",
    flag="high",
    number=11.2,
    low=3.9,
    high=6.1,
    cells={"value": box(150, 40, 40, 18)},
    score=0.98,
)

HISTORIES: dict[str, list[ev.Event]] = {
    "nothing happened": [],
    "a sheet is uploaded, detected, sharpened and read": [
        opened(),
        committed(),
        ev.AssetDetected(
            at=AT, actor=SYSTEM, asset="as-1", media_type="image/png", width=400, height=300
        ),
        ev.AssetLevel(
            at=AT,
            actor=SYSTEM,
            asset="as-1",
            level=Level(level=16, width=16, height=12, media_type="image/jpeg"),
        ),
        ev.AssetLevel(
            at=AT,
            actor=SYSTEM,
            asset="as-1",
            level=Level(level=0, width=400, height=300, media_type="image/png"),
        ),
        ev.AssetObserved(
            at=AT,
            actor=SYSTEM,
            asset="as-1",
            rows=(TextRow(id="row-1", box=box(10, 10, 90, 18), text="血糖 report", score=0.9),),
        ),
        ev.AssetObserved(at=AT, actor=SYSTEM, asset="as-1", rows=(GLUCOSE,)),
        ev.AssetRead(at=AT, actor=SYSTEM, asset="as-1", timings={"read_s": 1.5}),
    ],
    "a medical series says what it shows, and a mark is on one of its frames": [
        opened(name="series.dcm"),
        committed(),
        ev.AssetDetected(
            at=AT,
            actor=MODEL,
            asset="as-1",
            media_type="application/dicom",
            width=512,
            height=512,
            frames=120,
            imaging=Imaging(
                modality="CT",
                body_part="CHEST",
                view="axial",
                pixel_spacing=Spacing(rows=0.75, columns=0.5),
                window_center=40,
                window_width=400,
            ),
        ),
        ev.AnnotationPut(
            at=AT,
            actor=OTTO,
            op_id="o-1",
            annotation=Annotation(
                id="a-1", target=Target(asset="as-1", frame=57), shape=box(10, 20, 30, 40)
            ),
        ),
    ],
    "a microphone is written down while it is open": [
        ev.AssetOpened(
            at=AT,
            actor=MEI,
            asset="as-1",
            name="Mei Lin",
            kind="microphone",
            media_type="audio/pcm;rate=48000;channels=1",
        ),
        ev.AssetObserved(
            at=AT,
            actor=MODEL,
            asset="as-1",
            rows=(SpeechRow(id="u-1", start=0.5, end=2.25, text="The potassium", final=False),),
        ),
        ev.AssetObserved(
            at=AT,
            actor=MODEL,
            asset="as-1",
            rows=(
                SpeechRow(id="u-1", start=0.5, end=3.0, text="The potassium is low."),
                SpeechRow(id="u-2", start=4.0, end=5.5, text="Agreed."),
            ),
        ),
        ev.AssetDetected(
            at=AT,
            actor=MODEL,
            asset="as-1",
            media_type="audio/pcm;rate=48000;channels=1",
            width=0,
            height=0,
            duration_s=6.25,
        ),
        committed(),
        ev.AssetRead(at=AT, actor=MODEL, asset="as-1"),
    ],
    "a camera is read still by still, marked while it is open, and ends": [
        ev.AssetOpened(
            at=AT, actor=MEI, asset="as-1", name="Bench", kind="camera", media_type="image/jpeg"
        ),
        ev.AssetDetected(
            at=AT, actor=MODEL, asset="as-1", media_type="image/jpeg", width=640, height=480
        ),
        keyframe(0, 1_000_000),
        ev.AssetObserved(
            at=AT,
            actor=MODEL,
            asset="as-1",
            rows=(
                TextRow(
                    id="as-1.0.text.1",
                    box=box(1, 2, 30, 9),
                    text="OK",
                    score=0.9,
                    frame=0,
                    pts_us=1_000_000,
                ),
            ),
        ),
        keyframe(1, 11_000_000, like=0),
        ev.AnnotationPut(
            at=AT,
            actor=OTTO,
            op_id="o-1",
            annotation=Annotation(
                id="a-1",
                target=Target(asset="as-1", frame=1, pts_us=11_000_000),
                shape=box(10, 20, 30, 40),
            ),
        ),
        # Told again after a crash: it takes the place of the first.
        keyframe(1, 12_000_000),
        ev.AssetRead(at=AT, actor=MODEL, asset="as-1"),
    ],
    "a video that fails takes its keyframes with it": [
        opened(name="clip.mp4"),
        committed(),
        keyframe(0, 0),
        ev.AssetFailed(
            at=AT, actor=SYSTEM, asset="as-1", code=ErrorCode.MEDIA_TRUNCATED, message="cut"
        ),
    ],
    "a row that is observed again takes its old place": [
        opened(),
        ev.AssetObserved(
            at=AT,
            actor=SYSTEM,
            asset="as-1",
            rows=(
                TextRow(id="row-1", box=box(0, 0, 9, 9), text="draft", score=0.5),
                TextRow(id="row-2", box=box(0, 9, 9, 9), text="second", score=0.5),
            ),
        ),
        ev.AssetObserved(
            at=AT,
            actor=SYSTEM,
            asset="as-1",
            rows=(TextRow(id="row-1", box=box(0, 0, 9, 9), text="final", score=0.9),),
        ),
    ],
    "two people mark a picture and the last writer of a property wins": [
        opened(),
        committed(),
        put("a-1"),
        ev.AnnotationPatched(at=AT, actor=OTTO, op_id="o-2", id="a-1", label="cyst"),
        ev.AnnotationPatched(
            at=AT, actor=MEI, op_id="o-3", id="a-1", shape=PointMark(x=100, y=75.25)
        ),
        ev.AnnotationPatched(at=AT, actor=OTTO, op_id="o-4", id="a-1", severity="critical"),
        ev.CommentAdded(
            at=AT, actor=OTTO, op_id="o-5", id="c-1", text="Agreed 👍", target=Target(asset="as-1")
        ),
    ],
    "a delete wins over a late edit and can be taken back": [
        opened(),
        committed(),
        put("a-1"),
        put("a-2", OTTO, x=-3.5),
        ev.AnnotationDeleted(at=AT, actor=OTTO, op_id="o-3", id="a-1"),
        ev.AnnotationPatched(at=AT, actor=MEI, op_id="o-4", id="a-1", label="lost edit"),
        ev.AnnotationDeleted(at=AT, actor=OTTO, op_id="o-5", id="a-2"),
        ev.AnnotationRestored(at=AT, actor=MEI, op_id="o-6", id="a-2"),
        ev.AnnotationPatched(
            at=AT,
            actor=MEI,
            op_id="o-7",
            id="a-2",
            shape=Polygon(points=(Point(0, 0), Point(10, 0), Point(5.5, 8))),
        ),
    ],
    "a failed upload withdraws what the engine said, not what people said": [
        opened(),
        committed(),
        ev.AssetObserved(at=AT, actor=SYSTEM, asset="as-1", rows=(GLUCOSE,)),
        put("a-1", MODEL),
        put("a-2", MEI),
        ev.AssetFailed(
            at=AT,
            actor=SYSTEM,
            asset="as-1",
            code=ErrorCode.MEDIA_TRUNCATED,
            message="The file ends before its picture does.",
        ),
        ev.AssetRead(at=AT, actor=SYSTEM, asset="as-1"),
    ],
    "an answer streams, links to the sheet and ends": [
        opened(),
        committed(),
        started("t-1", "Which values are out of range?", "as-1"),
        prompted("t-1"),
        delta("t-1", 0, "Glucose 👩‍⚕️ is "),
        delta("t-1", 16, "11.2", Span(start=16, end=20, kind="number")),
        delta("t-1", 20, " mmol/L.", Span(start=21, end=27, kind="unit")),
        ev.TurnAnnotation(
            at=AT,
            actor=MODEL,
            turn="t-1",
            link=SpanLink(
                start=16, end=20, asset="as-1", observation="row-2", box=box(150, 40, 40, 18)
            ),
        ),
        ev.TurnDone(
            at=AT,
            actor=MODEL,
            turn="t-1",
            finish="stop",
            text_sha256="d8e91324a4f2ef726e3c281d171cd1a6a3b74b11c2bf0d33bdb2e0bd7e68135e",
            prompt_tokens=120,
            answer_tokens=14,
            cached_tokens=0,
            timings={"first_token_s": 0.25, "total_s": 1.5},
        ),
    ],
    "a cancelled and a failed answer keep what was delivered": [
        started("t-1", "Summarise."),
        prompted("t-1", "as-9"),
        delta("t-1", 0, "The "),
        started("t-2", "And in short?"),
        delta("t-1", 4, "patient"),
        ev.TurnCancelled(at=AT, actor=OTTO, turn="t-1", reason="barge_in"),
        delta("t-1", 11, " never delivered"),
        delta("t-2", 0, "Short"),
        ev.TurnFailed(
            at=AT,
            actor=SYSTEM,
            turn="t-2",
            code=ErrorCode.ENGINE_LOST,
            message="The engine's process ended while it worked on this.",
        ),
        started("t-3", "Still there?"),
    ],
}


def numbered(events: list[ev.Event]) -> list[ev.Event]:
    """Number the events and read them back from JSON, so that 40 becomes 40.0 as on a wire."""
    return [
        decode_event(encode(number(event, seq=place, epoch="e1")))
        for place, event in enumerate(events, start=1)
    ]


def history(name: str, events: list[ev.Event], start: Snapshot | None = None) -> dict[str, object]:
    """Fold the events; stop where one does not follow, as a client would."""
    state = RoomState.from_snapshot(start) if start is not None else RoomState()
    gap_at = None
    for place, event in enumerate(events):
        try:
            apply(state, event)
        except EventGap:
            gap_at = place
            break
    return {
        "name": name,
        "start": start,
        "events": events,
        "gap_at": gap_at,
        "snapshot": state.snapshot(),
        "hash": state.hash(),
    }


def histories() -> list[dict[str, object]]:
    whole = [history(name, numbered(events)) for name, events in HISTORIES.items()]
    marked = numbered(HISTORIES["two people mark a picture and the last writer of a property wins"])
    state = RoomState()
    for event in marked[:4]:
        apply(state, event)
    foreign = [msgspec.structs.replace(marked[4], epoch="e2")]
    return [
        *whole,
        history("events that come twice change nothing", marked[:4] + marked[2:]),
        history("a snapshot and the events after it give the same", marked[4:], state.snapshot()),
        history("a missing event is a gap and changes nothing", marked[:3] + marked[4:]),
        history("an event of another epoch is a gap", foreign, state.snapshot()),
    ]


def main() -> None:
    text = msgspec.json.format(msgspec.json.encode(histories()), indent=1)
    (ROOT / "tests/vectors/room_history.json").write_bytes(text + b"\n")


if __name__ == "__main__":
    main()
