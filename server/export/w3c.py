"""Marks and comments as W3C Web Annotations, one JSON-LD collection.

The target's source is the picture in whose pixels the shape is given (the upright one in full
resolution, or the frame), so nobody has to apply an EXIF orientation. Shapes are `SvgSelector`s:
the grammar of `xywh=pixel:` (Media Fragments 4.2.2) has whole numbers only.
"""

from __future__ import annotations

import json
from typing import Any, assert_never
from xml.sax.saxutils import quoteattr

from protocol.shapes import Actor, Ellipse, PointMark, Polygon, Polyline, Rectangle, Shape, Target
from protocol.state import AnnotationState, AssetState, CommentState
from server.export import case as c

CONTEXT = "http://www.w3.org/ns/anno.jsonld"
VOCABULARY = "urn:consilium:terms#"
_MEDIA_FRAGMENTS = "http://www.w3.org/TR/media-frags/"
# A point has no extent in the room; in SVG it would then not be drawn.
_POINT_RADIUS_PX = 2


def write(case: c.Case) -> bytes:
    """The room's standing marks and its comments."""
    items = [_mark(case, mark, asset) for mark, asset in c.standing_marks(case)]
    items += [_comment(case, comment) for comment in case.snapshot.comments]
    page = {
        "id": f"{case.room_address}/annotations?page=0",
        "type": "AnnotationPage",
        "startIndex": 0,
        "items": items,
    }
    collection = {
        "@context": [CONTEXT, {"consilium": VOCABULARY}],
        "id": f"{case.room_address}/annotations",
        "type": "AnnotationCollection",
        "label": f"Room {case.room}",
        "generated": c.moment(case.at),
        "total": len(items),
        "first": page,
        "consilium:epoch": case.snapshot.epoch,
        "consilium:seq": case.snapshot.seq,
    }
    return json.dumps(collection, ensure_ascii=False, indent=1).encode()


def svg(shape: Shape, width: int, height: int) -> str:
    """The shape alone, as an SVG of the picture's size."""
    head = '<svg xmlns="http://www.w3.org/2000/svg"'
    if width and height:
        head += f' viewBox="0 0 {width} {height}"'
    return f"{head}>{element(shape)}</svg>"


def element(shape: Shape, **attributes: str) -> str:
    """One SVG element; attribute values are escaped here."""
    more = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
    match shape:
        case Rectangle():
            return (
                f'<rect x="{_n(shape.x)}" y="{_n(shape.y)}" width="{_n(shape.width)}" '
                f'height="{_n(shape.height)}"{more}/>'
            )
        case Ellipse():
            across, down = shape.width / 2, shape.height / 2
            return (
                f'<ellipse cx="{_n(shape.x + across)}" cy="{_n(shape.y + down)}" '
                f'rx="{_n(across)}" ry="{_n(down)}"{more}/>'
            )
        case PointMark():
            return f'<circle cx="{_n(shape.x)}" cy="{_n(shape.y)}" r="{_POINT_RADIUS_PX}"{more}/>'
        case Polyline() | Polygon():
            points = " ".join(f"{_n(point.x)},{_n(point.y)}" for point in shape.points)
            name = "polyline" if isinstance(shape, Polyline) else "polygon"
            return f'<{name} points="{points}"{more}/>'
        case _:
            assert_never(shape)


def _n(number: float) -> str:
    return f"{number:.15g}"


def _mark(case: c.Case, mark: AnnotationState, asset: AssetState) -> dict[str, Any]:
    annotation = mark.annotation
    body = [_body("classifying", annotation.severity)]
    if annotation.label:
        body.insert(0, _body("describing", annotation.label))
    if c.is_unreviewed(mark.by):
        body.append(_body("tagging", c.UNREVIEWED))
    size = c.frame_size(asset, annotation.target.frame)
    selector: dict[str, Any] = {"type": "SvgSelector", "value": svg(annotation.shape, *size)}
    described = {
        "id": f"{case.room_address}/annotations/{annotation.id}",
        "type": "Annotation",
        "motivation": "highlighting" if not annotation.label else "describing",
        **_made(case, mark.by, mark.seq, mark.changed_seq),
        "body": body,
        "target": _target(case, asset, annotation.target, selector),
    }
    if annotation.observation is not None:
        described["consilium:observation"] = annotation.observation
    return described


def _comment(case: c.Case, comment: CommentState) -> dict[str, Any]:
    target: Any = case.room_address
    assets = {asset.asset: asset for asset in case.snapshot.assets}
    if comment.target is not None and comment.target.asset in assets:
        target = _target(case, assets[comment.target.asset], comment.target, None)
    described = {
        "id": f"{case.room_address}/comments/{comment.id}",
        "type": "Annotation",
        "motivation": "commenting",
        **_made(case, comment.by, comment.seq, comment.seq),
        "body": [_body("commenting", comment.text)],
        "target": target,
    }
    return {**described, "created": c.moment(comment.at)}


def _body(purpose: str, value: str) -> dict[str, Any]:
    return {"type": "TextualBody", "purpose": purpose, "format": "text/plain", "value": value}


def _made(case: c.Case, by: Actor, seq: int, changed_seq: int) -> dict[str, Any]:
    creator: dict[str, Any] = {
        "id": f"{case.room_address}/participants/{by.id}",
        "type": "Person" if by.kind == "person" else "Software",
        "name": by.name,
    }
    if by.department:
        creator["consilium:department"] = by.department
    made: dict[str, Any] = {"creator": creator}
    if (created := case.times.get(seq)) is not None:
        made["created"] = c.moment(created)
    if changed_seq != seq and (changed := case.times.get(changed_seq)) is not None:
        made["modified"] = c.moment(changed)
    made["consilium:review"] = c.UNREVIEWED if c.is_unreviewed(by) else "made-by-person"
    return made


def _target(
    case: c.Case, asset: AssetState, target: Target, selector: dict[str, Any] | None
) -> dict[str, Any]:
    """A place in the picture, by way of its time where it is a still of a video."""
    source: dict[str, Any] = {
        "id": c.frame_address(case, asset, target),
        "type": "Image" if asset.width or asset.keyframes else "Dataset",
        "consilium:asset": asset.asset,
        "consilium:name": asset.name,
        "consilium:frame": target.frame,
    }
    if asset.sha256 is not None:
        source["consilium:sha256"] = asset.sha256
    described: dict[str, Any] = {"type": "SpecificResource", "source": source}
    if target.pts_us is not None:
        described["consilium:time"] = {
            "type": "FragmentSelector",
            "conformsTo": _MEDIA_FRAGMENTS,
            "value": f"t={target.pts_us / 1e6:.6f}",
        }
    if selector is not None:
        described["selector"] = selector
    return described
