"""The things that messages speak of: people, places in a picture, marks, rows that were read.

Coordinates are pixels of the picture after its orientation was applied, continuous, origin at
the outer corner of the first pixel, x to the right and y down; they are never screen pixels.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

# Python's `$` also matches before a last line feed, which `(?!\n)` refuses in every dialect.
Id = Annotated[
    str,
    Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_:-][A-Za-z0-9_.:-]*$(?!\n)"),
]
"""An identifier made by a client or the server; safe in a URL and in a file name."""

Label = Annotated[str, Meta(max_length=1_000)]
LongText = Annotated[str, Meta(max_length=16_000)]
Coordinate = Annotated[float, Meta(ge=-1e6, le=1e6)]
Extent = Annotated[float, Meta(ge=0, le=1e6)]
Role = Literal["chair", "member", "observer", "camera", "auditor"]


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of everything nested in messages; unknown fields are passed over."""


class Actor(Part, frozen=True, kw_only=True):
    """Who did something: a person, the model, or the server itself."""

    id: str
    name: str
    department: str = ""
    kind: Literal["person", "model", "system"] = "person"


class Point(msgspec.Struct, frozen=True, array_like=True):
    """A place in a picture; on the wire `[x, y]`."""

    x: Coordinate
    y: Coordinate


class Rectangle(Part, tag="rectangle", tag_field="type", frozen=True, kw_only=True):
    """Upright; `x`, `y` are its corner nearest the origin."""

    x: Coordinate
    y: Coordinate
    width: Extent
    height: Extent


class Ellipse(Part, tag="ellipse", tag_field="type", frozen=True, kw_only=True):
    """Upright, given by the rectangle around it."""

    x: Coordinate
    y: Coordinate
    width: Extent
    height: Extent


class PointMark(Part, tag="point", tag_field="type", frozen=True, kw_only=True):
    """One place."""

    x: Coordinate
    y: Coordinate


class Polyline(Part, tag="polyline", tag_field="type", frozen=True, kw_only=True):
    """An open line, freehand strokes included."""

    points: Annotated[tuple[Point, ...], Meta(min_length=2, max_length=5_000)]


class Polygon(Part, tag="polygon", tag_field="type", frozen=True, kw_only=True):
    """A closed line; the last point is joined to the first."""

    points: Annotated[tuple[Point, ...], Meta(min_length=3, max_length=5_000)]


Shape = Rectangle | Ellipse | PointMark | Polyline | Polygon


class Target(Part, frozen=True, kw_only=True):
    """What a mark or comment is about; `pts_us` is null for a still picture."""

    asset: Id
    frame: int = 0
    pts_us: int | None = None


class Annotation(Part, frozen=True, kw_only=True):
    """A mark on a picture. `severity` colours it; `observation` names the row it came from."""

    id: Id
    target: Target
    shape: Shape
    label: Label = ""
    severity: Literal["note", "warning", "critical"] = "note"
    observation: str | None = None


class Row(Part, tag_field="type", frozen=True, kw_only=True):
    """Base of what perception read."""


class TextRow(Row, tag="text", frozen=True, kw_only=True):
    """One piece of text; `score` is the recogniser's, 0 to 1.

    Of a video or camera it was read on keyframe `frame`, at `pts_us`; null on a still picture.
    """

    id: str
    box: Rectangle
    text: str
    score: float
    frame: int = 0
    pts_us: int | None = None


class LabRow(Row, tag="lab", frozen=True, kw_only=True):
    """One analyte of a lab sheet, strings as on the sheet; `flag` compares value and range.

    `doubt` says what is not certain: whether a `separator` is a decimal mark, what `value` or
    `range` means, what the `unit` is or whether the range is in it, a printed `mark` that
    contradicts the flag, a `reading` that was not confirmed at a second look.
    `frame` and `pts_us` are as in `text` rows.
    """

    id: str
    box: Rectangle
    analyte: str
    value: str
    unit: str
    range: str
    flag: Literal["low", "normal", "high", "abnormal", "unknown"]
    number: float | None = None
    low: float | None = None
    high: float | None = None
    doubt: Literal["separator", "value", "range", "unit", "mark", "reading"] | None = None
    cells: dict[str, Rectangle] = {}
    score: float = 1.0
    frame: int = 0
    pts_us: int | None = None


class SpeechRow(Row, tag="speech", frozen=True, kw_only=True):
    """What was said from `start` to `end` of a recording, in seconds of its own time.

    A later row with the same `id` replaces an earlier one, which was not `final`.
    """

    id: str
    start: float
    end: float
    text: str
    final: bool = True


ObservedRow = TextRow | LabRow | SpeechRow


class Keyframe(Part, frozen=True, kw_only=True):
    """A still of a video or camera, number `frame`, that can be fetched as JPEG.

    `pts_us` is its time: from a video's beginning, or by the camera's own clock. `like` names an
    earlier keyframe that shows the same, whose rows are also those of this one.
    """

    frame: int
    pts_us: int
    width: int
    height: int
    like: int | None = None


class Level(Part, frozen=True, kw_only=True):
    """One resolution that can be fetched; `level` is its longer side, 0 for full resolution."""

    level: int
    width: int
    height: int
    media_type: str


class Spacing(msgspec.Struct, frozen=True, array_like=True):
    """Millimetres from one row of pixels to the next, and from column to column; a pair."""

    rows: float
    columns: float


class Imaging(Part, frozen=True, kw_only=True):
    """What a medical image says of its pixels; nothing in it names a person, a place or a time.

    Words are defined terms of DICOM or "". The window is the file's first, null without one. The
    frames of what is not `color` have all the depth of the file.
    """

    modality: str = ""
    body_part: str = ""
    view: str = ""
    laterality: str = ""
    pixel_spacing: Spacing | None = None
    window_center: float | None = None
    window_width: float | None = None
    color: bool = False


class Span(Part, frozen=True, kw_only=True):
    """A part `[start, end)` of an answer, in code points."""

    start: int
    end: int
    kind: Literal["number", "unit", "entity", "out_of_range"]


class SpanLink(Part, frozen=True, kw_only=True):
    """Ties a part of an answer to the place that it speaks of."""

    start: int
    end: int
    asset: str
    observation: str
    box: Rectangle
