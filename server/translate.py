"""The engine's words and the protocol's: the only place that knows both."""

from __future__ import annotations

import msgspec

from engine import api
from protocol import shapes
from protocol.errors import ErrorCode
from protocol.messages import CameraState
from protocol.shapes import Actor

MODEL = Actor(id="model", name="Consilium", kind="model")
SERVER = Actor(id="server", name="Consilium", kind="system")

_ARROWS = {"low": " ↓", "high": " ↑"}


def code(engine_code: api.EngineCode) -> ErrorCode:
    """Every code of the engine is one of the protocol."""
    return ErrorCode(engine_code.value)


def rectangle(box: api.Box) -> shapes.Rectangle:
    """A box as the protocol draws it."""
    return shapes.Rectangle(x=box.x, y=box.y, width=box.width, height=box.height)


def row(seen: api.TextRow | api.LabRow | api.Speech) -> shapes.ObservedRow:
    """A row that perception read, for an event."""
    if isinstance(seen, api.Speech):
        return shapes.SpeechRow(
            id=seen.id, start=seen.start_s, end=seen.end_s, text=seen.text, final=seen.final
        )
    if isinstance(seen, api.TextRow):
        return shapes.TextRow(
            id=seen.id,
            box=rectangle(seen.box),
            text=seen.text,
            score=seen.score,
            frame=seen.frame,
            pts_us=seen.pts_us,
        )
    return shapes.LabRow(
        id=seen.id,
        box=rectangle(seen.box),
        analyte=seen.analyte,
        value=seen.value,
        unit=seen.unit,
        range=seen.range,
        flag=seen.flag,
        number=seen.number,
        low=seen.low,
        high=seen.high,
        doubt=seen.doubt,
        cells={name: rectangle(box) for name, box in seen.cells.items()},
        score=seen.score,
        frame=seen.frame,
        pts_us=seen.pts_us,
    )


def keyframe(seen: api.Keyframe) -> shapes.Keyframe:
    """A still of a video or camera, for an event."""
    return shapes.Keyframe(
        frame=seen.frame,
        pts_us=seen.pts_us,
        width=seen.width,
        height=seen.height,
        like=seen.like,
    )


def camera_state(told: api.Stills) -> CameraState:
    """How a camera does, for everybody in its room."""
    return CameraState(
        asset=told.media,
        taken=told.taken,
        dropped=told.dropped,
        refused=told.refused,
        age_s=round(told.age_s, 3),
        code=code(told.code) if told.code is not None else None,
    )


def _box(drawn: shapes.Rectangle) -> api.Box:
    return api.Box(x=drawn.x, y=drawn.y, width=drawn.width, height=drawn.height)


def imaging(told: api.Imaging | None) -> shapes.Imaging | None:
    """What a medical image says of its pixels, for an event."""
    return None if told is None else msgspec.convert(msgspec.to_builtins(told), shapes.Imaging)


def seen_imaging(told: shapes.Imaging | None) -> api.Imaging | None:
    """The same, as the engine said it."""
    return None if told is None else msgspec.convert(msgspec.to_builtins(told), api.Imaging)


def text_rows(media: str, rows: tuple[shapes.ObservedRow, ...]) -> tuple[api.TextRow, ...]:
    """The pieces of text among an asset's rows, as the engine made them."""
    return tuple(
        api.TextRow(
            media=media,
            id=r.id,
            box=_box(r.box),
            text=r.text,
            score=r.score,
            frame=r.frame,
            pts_us=r.pts_us,
        )
        for r in rows
        if isinstance(r, shapes.TextRow)
    )


def lab_rows(media: str, rows: tuple[shapes.ObservedRow, ...]) -> tuple[api.LabRow, ...]:
    """The analytes among an asset's rows, as the engine made them."""
    return tuple(
        api.LabRow(
            media=media,
            id=r.id,
            box=_box(r.box),
            analyte=r.analyte,
            value=r.value,
            unit=r.unit,
            range=r.range,
            flag=r.flag,
            number=r.number,
            low=r.low,
            high=r.high,
            doubt=r.doubt,
            cells={name: _box(box) for name, box in r.cells.items()},
            score=r.score,
            frame=r.frame,
            pts_us=r.pts_us,
        )
        for r in rows
        if isinstance(r, shapes.LabRow)
    )


def speech(media: str, rows: tuple[shapes.ObservedRow, ...]) -> tuple[api.Speech, ...]:
    """What was said, among an asset's rows, as the engine wrote it down."""
    return tuple(
        api.Speech(media=media, id=r.id, start_s=r.start, end_s=r.end, text=r.text, final=r.final)
        for r in rows
        if isinstance(r, shapes.SpeechRow)
    )


def out_of_range_mark(asset: str, seen: api.LabRow) -> shapes.Annotation | None:
    """The mark for a value that is not normal; the same row always has the same mark.

    A value beyond twice its bound, or under half of it, is critical.
    """
    if seen.flag not in ("low", "high", "abnormal"):
        return None
    parts = [seen.analyte, seen.value, seen.unit]
    label = " ".join(part for part in parts if part) + _ARROWS.get(seen.flag, "")
    if seen.range:
        label += f" ({seen.range})"
    return shapes.Annotation(
        id=f"lab:{asset}:{seen.id.removeprefix(asset + '.')}",
        target=shapes.Target(asset=asset, frame=seen.frame, pts_us=seen.pts_us),
        shape=rectangle(seen.box),
        label=label[:1_000],
        severity="critical" if _is_critical(seen) else "warning",
        observation=seen.id,
    )


def _is_critical(seen: api.LabRow) -> bool:
    if seen.number is None:
        return False
    if seen.flag == "high" and seen.high:
        return seen.number >= 2 * seen.high
    return seen.flag == "low" and bool(seen.low) and seen.number <= 0.5 * (seen.low or 0)


def spans(made: tuple[api.Span, ...]) -> tuple[shapes.Span, ...]:
    """Spans of an answer, for an event."""
    return tuple(shapes.Span(start=s.start, end=s.end, kind=s.kind) for s in made)


def link(made: api.TurnAnnotation) -> shapes.SpanLink:
    """What a part of an answer speaks of, for an event."""
    return shapes.SpanLink(
        start=made.start,
        end=made.end,
        asset=made.media,
        observation=made.observation,
        box=rectangle(made.box),
    )
