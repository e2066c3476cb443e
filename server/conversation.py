"""A room's state as the conversation that the model is given: pure."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeGuard

from msgspec.structs import replace

from engine import api
from protocol.room import RoomState
from protocol.shapes import Actor, LabRow, ObservedRow, TextRow
from protocol.state import AssetState, TurnState
from server import translate

MAX_ASSETS = 32
FULL = 0
# Of a video: moments whose text is told, and moments that a model with eyes is shown.
MAX_MOMENTS = 8
MAX_SHOWN = 4


class Places(Protocol):
    """Where the files of assets lie (`server.assets.Assets`)."""

    def original(self, sha256: str) -> Path: ...
    def level(self, asset: str, level: int) -> Path: ...
    def frame(self, asset: str, number: int) -> Path: ...
    def sound(self, asset: str) -> Path: ...


def speaker(by: Actor) -> str:
    """How a person is called in the prompt."""
    return f"{by.name} ({by.department})" if by.department else by.name


def assets_of_question(state: RoomState, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The assets that a question is about: those named, else the newest of the room.

    A microphone that is open is not waited for: somebody may speak for as long as they like. A
    camera is asked about as soon as it has shown something.
    """
    if asked:
        return asked
    usable = [
        asset.asset
        for asset in state.assets.values()
        if asset.status != "failed"
        and (asset.kind == "file" or asset.status != "open" or asset.keyframes)
    ]
    return tuple(usable[-MAX_ASSETS:])


def unseen(state: RoomState, assets: tuple[str, ...]) -> tuple[str, ...]:
    """Which of the assets perception is not done with: still coming, or being read.

    A camera goes on for as long as somebody likes, so what it shows now is enough.
    """
    return tuple(
        asset
        for asset in assets
        if (known := state.assets.get(asset)) is not None
        and known.status in ("open", "committed")
        and not (known.kind == "camera" and known.keyframes)
    )


def messages(
    state: RoomState, turn: TurnState, missing: tuple[str, ...], places: Places
) -> tuple[api.Message, ...]:
    """The whole conversation up to this question, which comes last.

    A picture stands with the first question that had it, so that what the engine computed for
    earlier turns stays true; a camera with the last one alone, as it shows something else by now.
    A question without any answer is left out: a model that failed on
    it would fail on it again.
    """
    shown: set[str] = set()
    said: list[api.Message] = []
    for earlier in state.turns.values():
        if earlier.seq >= turn.seq or not earlier.text:
            continue
        said.append(_question(state, earlier, earlier.missing, shown, places, is_last=False))
        said.append(api.Message(role="assistant", text=earlier.text, turn=earlier.turn))
    said.append(_question(state, turn, missing, shown, places, is_last=True))
    return tuple(said)


def _question(
    state: RoomState,
    turn: TurnState,
    missing: tuple[str, ...],
    shown: set[str],
    places: Places,
    *,
    is_last: bool,
) -> api.Message:
    seen: list[api.Seen] = []
    for name in turn.assets:
        asset = state.assets.get(name)
        if asset is None or asset.status == "failed" or name in shown:
            continue
        if asset.kind == "camera":
            seen += [_shown_now(asset, places)] if is_last and asset.keyframes else []
            continue
        if not asset.sha256:
            continue
        is_missing = name in missing
        if not is_missing:
            shown.add(name)
        seen.append(_seen(asset, asset.sha256, is_missing, places))
    return api.Message(role="user", text=turn.question, speaker=speaker(turn.by), seen=tuple(seen))


def _seen(asset: AssetState, sha256: str, is_missing: bool, places: Places) -> api.Seen:
    moments = _spread(sorted({row.frame for row in asset.rows if is_on_frame(row)}), MAX_MOMENTS)
    rows = tuple(r for r in asset.rows if not is_on_frame(r) or r.frame in moments)
    return api.Seen(
        media=asset.asset,
        name=asset.name,
        path=str(places.original(sha256)),
        media_type=asset.media_type,
        width=asset.width,
        height=asset.height,
        text_rows=() if is_missing else translate.text_rows(asset.asset, rows),
        lab_rows=() if is_missing else translate.lab_rows(asset.asset, rows),
        speech=() if is_missing else translate.speech(asset.asset, rows),
        missing=is_missing,
        frames=asset.frames,
        imaging=translate.seen_imaging(asset.imaging),
        pictures=() if is_missing else _pictures(asset, places),
        sounds=() if is_missing else _sounds(asset, places),
        duration_s=asset.duration_s,
    )


def _pictures(asset: AssetState, places: Places) -> tuple[str, ...]:
    """What a model with eyes is shown: the whole picture, or different moments of a video."""
    if asset.keyframes:
        different = [keyframe.frame for keyframe in asset.keyframes if keyframe.like is None]
        shown = _spread(different, MAX_SHOWN)
        return tuple(str(places.frame(asset.asset, frame)) for frame in shown)
    if any(level.level == FULL for level in asset.levels):
        return (str(places.level(asset.asset, FULL)),)
    return ()


def _sounds(asset: AssetState, places: Places) -> tuple[str, ...]:
    """What a model that hears is given: the recording, which is there when it is short enough."""
    may_sound = asset.media_type.startswith(("audio/", "video/"))
    return (str(places.sound(asset.asset)),) if may_sound else ()


def _shown_now(asset: AssetState, places: Places) -> api.Seen:
    """A camera as a picture: its newest still, with the rows of the newest one that was read."""
    newest = asset.keyframes[-1]
    frame = newest.frame if newest.like is None else newest.like
    read = max((r.frame for r in asset.rows if is_on_frame(r) and r.frame <= frame), default=frame)
    rows = tuple(row for row in asset.rows if is_on_frame(row) and row.frame == read)
    return api.Seen(
        media=asset.asset,
        name=asset.name,
        path="",
        media_type=asset.media_type,
        width=newest.width,
        height=newest.height,
        text_rows=tuple(replace(r, pts_us=None) for r in translate.text_rows(asset.asset, rows)),
        lab_rows=tuple(replace(r, pts_us=None) for r in translate.lab_rows(asset.asset, rows)),
        pictures=(str(places.frame(asset.asset, newest.frame)),),
    )


def is_on_frame(row: ObservedRow) -> TypeGuard[TextRow | LabRow]:
    """Whether a row was read on a keyframe of a video or camera."""
    return isinstance(row, TextRow | LabRow) and row.pts_us is not None


def _spread(items: list[int], count: int) -> list[int]:
    """Choose so many of the items, the first and the last among them."""
    if len(items) <= count:
        return items
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]
