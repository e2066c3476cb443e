"""One still of a camera: a JPEG that a stranger sent, as a keyframe or as nothing new."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from engine.api import EngineCode, EngineError, Keyframe
from engine.perception.detect import identify
from engine.perception.film import write_keyframe
from engine.perception.likeness import Glance
from engine.perception.picture import Source
from engine.perception.wire import Answer, Finished, Still


def still(request: Still) -> Iterator[Answer]:
    """Decode; yields a `Keyframe` unless it shows what the last one showed and is not due."""
    began = time.perf_counter()
    kind = identify(request.path, max_bytes=request.max_bytes, max_pixels=request.max_pixels)
    if kind.media_type != "image/jpeg":
        raise EngineError(
            EngineCode.MEDIA_UNSUPPORTED, f"A camera sends JPEG stills, not {kind.media_type}."
        )
    picture = Source(request.path, kind).pixels()
    like = _like(request, picture)
    if like is None or request.is_due:
        yield Keyframe(
            media=request.media,
            frame=request.frame,
            pts_us=request.pts_us,
            path=write_keyframe(picture, request.derived_dir, request.frame),
            width=picture.width,
            height=picture.height,
            like=like,
        )
    yield Finished(timings={"decoded": time.perf_counter() - began})


def _like(request: Still, picture: Image.Image) -> int | None:
    if request.last_read is None:
        return None
    last = Path(request.derived_dir) / "frames" / str(request.last_read)
    try:
        with Image.open(last) as before:
            is_like = Glance.of(picture).is_like(Glance.of(before))
    except FileNotFoundError:
        # Old keyframes of a camera are deleted while it goes on.
        return None
    return request.last_read if is_like else None
