"""What every format is written from: a room at one moment, and where the bytes it shows lie."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from protocol.shapes import Actor, Target
from protocol.state import AnnotationState, AssetState, CommentState, Snapshot

UNREVIEWED = "unreviewed"
UNREVIEWED_SENTENCE = "Made by a model and not reviewed by a person."
DICOM = "application/dicom"


class NotExportable(Exception):
    """The room has nothing that this format could hold; the sentence says what is missing."""


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Where an asset's bytes lie; "" for what is not there.

    `picture` is the upright picture in full resolution, on which coordinates hold; `frames` are
    stills of a video or camera, or frames of a medical image, by number.
    """

    original: str = ""
    picture: str = ""
    picture_type: str = ""
    frames: dict[int, str] = {}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A room after one event. Times are Unix ms; `times` has those of the marks' events by `seq`.

    `base` is the server's address, under which pictures can be fetched. Only with `may_identify`
    may anything be written that says whom a medical image shows.
    """

    room: str
    base: str
    at: int
    snapshot: Snapshot
    times: dict[int, int] = {}
    files: dict[str, Files] = {}
    may_identify: bool = False

    @property
    def room_address(self) -> str:
        """The room as others can name it."""
        return f"{self.base.rstrip('/')}/v1/rooms/{self.room}"

    def files_of(self, asset: AssetState) -> Files:
        """Where an asset's bytes lie; nothing is there of one that nobody looked for."""
        return self.files.get(asset.asset, Files())


def standing_marks(case: Case) -> Iterator[tuple[AnnotationState, AssetState]]:
    """The marks that were not deleted, each with its asset, in the order of their making."""
    assets = {asset.asset: asset for asset in case.snapshot.assets}
    for mark in case.snapshot.annotations:
        asset = assets.get(mark.annotation.target.asset)
        if not mark.deleted and asset is not None and asset.status != "failed":
            yield mark, asset


def standing_assets(case: Case) -> Iterator[AssetState]:
    """The assets that did not fail."""
    return (asset for asset in case.snapshot.assets if asset.status != "failed")


def comments_on(case: Case, asset: str | None) -> list[CommentState]:
    """What was said about an asset, or (with None) about nothing in particular."""
    return [
        comment
        for comment in case.snapshot.comments
        if (None if comment.target is None else comment.target.asset) == asset
    ]


def is_unreviewed(by: Actor) -> bool:
    """Whether nobody answers for it: what no person made, for the protocol has no sign-off.

    A person who moved or renamed a model's mark did not thereby vouch for it.
    """
    return by.kind != "person"


def frame_address(case: Case, asset: AssetState, target: Target) -> str:
    """Where the very picture can be fetched in whose pixels the target's coordinates are."""
    place = f"{case.room_address}/assets/{asset.asset}"
    if asset.keyframes or (asset.imaging is not None and asset.frames > 1):
        return f"{place}/frames/{target.frame}"
    return f"{place}/levels/0" if asset.width else f"{place}/original"


def frame_size(asset: AssetState, frame: int) -> tuple[int, int]:
    """Width and height of the picture that a mark is on."""
    for keyframe in asset.keyframes:
        if keyframe.frame == frame:
            return keyframe.width, keyframe.height
    return asset.width, asset.height


def moment(ms: int) -> str:
    """A time as ISO 8601 writes it, in UTC."""
    stamp = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")


def read(path: str) -> bytes:
    """The bytes of a file of the case; b"" when it is not there any more."""
    try:
        return Path(path).read_bytes() if path else b""
    except FileNotFoundError:
        return b""
