"""Ways to look at bytes through a real `Perception`."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TypeVar

from engine.api import Completed, Media, MediaFailed, Observation
from engine.perception.service import Perception

Kind = TypeVar("Kind")


def media(folder: Path, content: bytes, *, name: str = "upload", **more: str) -> Media:
    """Store the bytes under `folder` and return a media item for them with an id of its own."""
    item = uuid.uuid4().hex
    path = folder / f"{item}.bin"
    path.write_bytes(content)
    derived = folder / f"{item}.derived"
    return Media(id=item, tenant="t", path=str(path), name=name, derived_dir=str(derived), **more)


async def look(perception: Perception, item: Media) -> list[Observation]:
    """Return all observations, checked to end with the only terminal one."""
    seen = [observation async for observation in perception.open(item)]
    terminals = [one for one in seen if isinstance(one, Completed | MediaFailed)]
    assert len(terminals) == 1 and seen[-1] is terminals[0], "exactly one terminal, last"
    return seen


def of(kind: type[Kind], seen: list[Observation]) -> list[Kind]:
    """Return the observations of one kind, in order."""
    return [one for one in seen if isinstance(one, kind)]
