"""A room's state as the conversation that the model is given: pure."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from engine import api
from protocol.room import RoomState
from protocol.shapes import Actor
from protocol.state import AssetState, TurnState
from server import translate

MAX_ASSETS = 32
FULL = 0


class Places(Protocol):
    """Where the files of assets lie (`server.assets.Assets`)."""

    def original(self, sha256: str) -> Path: ...
    def level(self, asset: str, level: int) -> Path: ...


def speaker(by: Actor) -> str:
    """How a person is called in the prompt."""
    return f"{by.name} ({by.department})" if by.department else by.name


def assets_of_question(state: RoomState, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The assets that a question is about: those named, else the newest of the room.

    A microphone that is open is not waited for: somebody may speak for as long as they like.
    """
    if asked:
        return asked
    usable = [
        asset.asset
        for asset in state.assets.values()
        if asset.status != "failed" and (asset.kind == "file" or asset.status != "open")
    ]
    return tuple(usable[-MAX_ASSETS:])


def unseen(state: RoomState, assets: tuple[str, ...]) -> tuple[str, ...]:
    """Which of the assets perception is not done with: still coming, or being read."""
    return tuple(
        asset
        for asset in assets
        if (known := state.assets.get(asset)) is not None and known.status in ("open", "committed")
    )


def messages(
    state: RoomState, turn: TurnState, missing: tuple[str, ...], places: Places
) -> tuple[api.Message, ...]:
    """The whole conversation up to this question, which comes last.

    A picture stands with the first question that had it, so that what the engine computed for
    earlier turns stays true. A question without any answer is left out: a model that failed on
    it would fail on it again.
    """
    shown: set[str] = set()
    said: list[api.Message] = []
    for earlier in state.turns.values():
        if earlier.seq >= turn.seq or not earlier.text:
            continue
        said.append(_question(state, earlier, earlier.missing, shown, places))
        said.append(api.Message(role="assistant", text=earlier.text, turn=earlier.turn))
    said.append(_question(state, turn, missing, shown, places))
    return tuple(said)


def _question(
    state: RoomState,
    turn: TurnState,
    missing: tuple[str, ...],
    shown: set[str],
    places: Places,
) -> api.Message:
    seen: list[api.Seen] = []
    for name in turn.assets:
        asset = state.assets.get(name)
        if asset is None or asset.status == "failed" or name in shown or not asset.sha256:
            continue
        is_missing = name in missing
        if not is_missing:
            shown.add(name)
        seen.append(_seen(asset, is_missing, places))
    return api.Message(role="user", text=turn.question, speaker=speaker(turn.by), seen=tuple(seen))


def _seen(asset: AssetState, is_missing: bool, places: Places) -> api.Seen:
    assert asset.sha256 is not None, "only committed assets are part of a question"
    is_whole = any(level.level == FULL for level in asset.levels)
    return api.Seen(
        media=asset.asset,
        name=asset.name,
        path=str(places.original(asset.sha256)),
        media_type=asset.media_type,
        width=asset.width,
        height=asset.height,
        text_rows=() if is_missing else translate.text_rows(asset.asset, asset.rows),
        lab_rows=() if is_missing else translate.lab_rows(asset.asset, asset.rows),
        speech=() if is_missing else translate.speech(asset.asset, asset.rows),
        missing=is_missing,
        frames=asset.frames,
        imaging=translate.seen_imaging(asset.imaging),
        pictures=(str(places.level(asset.asset, FULL)),) if is_whole and not is_missing else (),
    )
