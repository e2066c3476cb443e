"""Marks as a COCO data set, for training: one image a picture or frame, one category a label.

`bbox` is x, y, width, height with the origin at the first pixel's outer corner, as pycocotools
reads it, so nothing is converted; the picture is the upright one. What COCO has no word for (an
ellipse, a line) is a polygon of the same outline, and stands exactly in `attributes.shape`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from protocol.shapes import PointMark, Polyline
from protocol.state import AnnotationState, AssetState
from server.export import case as c
from server.export.geometry import area, bounds, corners

_UNLABELLED = "unlabelled"
# Enough corners for a polygon, which readers ask for, where there are fewer.
_FEWEST_CORNERS = 3


def write(case: c.Case) -> bytes:
    """The standing marks on everything that has pixels."""
    marks = [(mark, asset) for mark, asset in c.standing_marks(case) if _size(mark, asset)[0]]
    places: dict[tuple[str, int], int] = {}
    categories: dict[str, int] = {}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for asset in c.standing_assets(case):
        if asset.width and not asset.keyframes:
            _place(places, images, case, asset, 0)
    for number, (mark, asset) in enumerate(marks, 1):
        image = _place(places, images, case, asset, mark.annotation.target.frame)
        name = mark.annotation.label or _UNLABELLED
        category = categories.setdefault(name, len(categories) + 1)
        annotations.append(_annotation(number, image, category, mark))
    points = {a["category_id"] for a in annotations if "keypoints" in a}
    data = {
        "info": _info(case),
        "licenses": [],
        "images": images,
        "annotations": annotations,
        "categories": [_category(name, n, n in points) for name, n in categories.items()],
    }
    return json.dumps(data, ensure_ascii=False).encode()


def _size(mark: AnnotationState, asset: AssetState) -> tuple[int, int]:
    return c.frame_size(asset, mark.annotation.target.frame)


def _info(case: c.Case) -> dict[str, Any]:
    made = datetime.fromtimestamp(case.at / 1000, UTC)
    return {
        "description": f"Consilium room {case.room}, event {case.snapshot.seq}. Annotations whose "
        f"attributes.review is {c.UNREVIEWED!r} were made by a model and not reviewed by a person.",
        "version": "1.0",
        "year": made.year,
        "date_created": made.isoformat(timespec="seconds"),
    }


def _place(
    places: dict[tuple[str, int], int],
    images: list[dict[str, Any]],
    case: c.Case,
    asset: AssetState,
    frame: int,
) -> int:
    key = asset.asset, frame
    if key not in places:
        places[key] = len(places) + 1
        images.append(_image(places[key], case, asset, frame))
    return places[key]


def _image(number: int, case: c.Case, asset: AssetState, frame: int) -> dict[str, Any]:
    width, height = c.frame_size(asset, frame)
    is_moving = bool(asset.keyframes) or asset.frames > 1
    base = f"{case.room_address}/assets/{asset.asset}"
    described = {
        "id": number,
        "width": width,
        "height": height,
        # Names that people gave may be the same, or no names of files at all.
        "file_name": f"{asset.asset}-frame-{frame}" if is_moving else asset.asset,
        "coco_url": f"{base}/frames/{frame}" if is_moving else f"{base}/levels/0",
        "name": asset.name,
        "frame": frame,
    }
    if asset.sha256 is not None:
        described["sha256"] = asset.sha256
    return described


def _annotation(number: int, image: int, category: int, mark: AnnotationState) -> dict[str, Any]:
    annotation, shape = mark.annotation, mark.annotation.shape
    box = bounds(shape)
    outline = corners(shape)
    if isinstance(shape, Polyline):
        # There and back again, so that it encloses nothing.
        outline = [*outline, *outline[-2:0:-1]]
    while len(outline) < _FEWEST_CORNERS:
        outline.append(outline[-1])
    described = {
        "id": number,
        "image_id": image,
        "category_id": category,
        "bbox": [box.x, box.y, box.width, box.height],
        "area": area(shape),
        "iscrowd": 0,
        "segmentation": [[value for corner in outline for value in corner]],
        "attributes": {
            "id": annotation.id,
            "severity": annotation.severity,
            "author": mark.by.name,
            "author_kind": mark.by.kind,
            "review": c.UNREVIEWED if c.is_unreviewed(mark.by) else "made-by-person",
            "shape": msgspec.to_builtins(shape),
        },
    }
    if isinstance(shape, PointMark):
        # 2: labelled and visible.
        described |= {"keypoints": [shape.x, shape.y, 2], "num_keypoints": 1}
    return described


def _category(name: str, number: int, has_points: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"id": number, "name": name, "supercategory": "mark"}
    if has_points:
        described |= {"keypoints": ["point"], "skeleton": []}
    return described
