"""A committed asset and the engine's perception: what is seen becomes events of the room."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from engine import api
from protocol import codec
from protocol.errors import ErrorCode, OpRefused
from protocol.events import (
    AnnotationPut,
    AssetDetected,
    AssetFailed,
    AssetLevel,
    AssetObserved,
    AssetRead,
)
from protocol.messages import AssetProgress
from protocol.room import RoomState
from protocol.shapes import Level
from protocol.state import AssetState
from server import translate
from server.assets import Assets
from server.background import Background
from server.gather import Gather
from server.hub import Hosted, Hub
from server.room import Room

ROWS_S = 0.05
MAX_ROWS_AN_EVENT = 64


class Looking:
    """Looks at assets, each once at a time."""

    def __init__(
        self,
        engine: api.Engine,
        assets: Assets,
        hub: Hub,
        background: Background,
        wall: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._assets = assets
        self._hub = hub
        self._background = background
        self._wall = wall
        self._looked_at: set[str] = set()

    def look(self, room: str, asset: str, declared_type: str | None = None) -> None:
        """Start to look at a committed asset; does nothing while that is under way."""
        if asset not in self._looked_at:
            self._looked_at.add(asset)
            self._background.spawn(self._look(room, asset, declared_type), f"look at {asset}")

    async def _look(self, room: str, asset: str, declared_type: str | None) -> None:
        hosted = await self._hub.enter(room)
        try:
            state = await hosted.room.between(lambda state: state.assets.get(asset))
            if state is not None and state.status == "committed" and state.sha256 is not None:
                await self._observe(hosted, state, declared_type)
        finally:
            self._looked_at.discard(asset)
            self._hub.leave(hosted)

    async def _observe(self, hosted: Hosted, asset: AssetState, declared_type: str | None) -> None:
        assert asset.sha256 is not None
        media = api.Media(
            id=asset.asset,
            tenant=hosted.room.name,
            path=str(self._assets.original(asset.sha256)),
            name=asset.name,
            derived_dir=str(self._assets.work_folder(asset.asset)),
            declared_type=declared_type,
        )
        gather = Gather(self._engine.open(media), ROWS_S)
        seen = _Seen(asset)
        try:
            async for group in gather.groups():
                rows: list[api.TextRow | api.LabRow] = []
                for observation in group:
                    if isinstance(observation, api.TextRow | api.LabRow):
                        rows.append(observation)
                    else:
                        await self._keep_rows(hosted.room, asset.asset, seen, rows)
                        rows = []
                        await self._keep(hosted.room, asset.asset, seen, observation)
                await self._keep_rows(hosted.room, asset.asset, seen, rows)
        except OpRefused:
            # Refused only when the room had no place for more marks; what was read stays.
            await self._fail(hosted.room, asset.asset, ErrorCode.ROOM_FULL, "the room is full")
        finally:
            await gather.close()

    async def _keep(self, room: Room, asset: str, seen: _Seen, observation: _Single) -> None:
        at = self._now_ms()
        match observation:
            case api.Detected():
                detected = AssetDetected(
                    at=at,
                    actor=translate.MODEL,
                    op_id=f"detected:{asset}",
                    asset=asset,
                    media_type=observation.media_type,
                    width=observation.width,
                    height=observation.height,
                    orientation=observation.orientation,
                    mismatch=observation.mismatch,
                )
                await room.record(detected)
            case api.LevelReady():
                await self._assets.keep_level(asset, observation.level, observation.path)
                level = Level(
                    level=observation.level,
                    width=observation.width,
                    height=observation.height,
                    media_type=observation.media_type,
                )
                if level.level not in seen.levels:
                    op_id = f"level:{asset}:{level.level}"
                    await room.record(
                        AssetLevel(
                            at=at, actor=translate.MODEL, op_id=op_id, asset=asset, level=level
                        )
                    )
            case api.Progress(stage=stage, done=done, total=total):
                progress = AssetProgress(asset=asset, stage=stage, done=done, total=total)
                room.show(progress.coalesce_key(), codec.encode(progress))
            case api.Completed():
                op_id = f"read:{asset}"
                await room.record(
                    AssetRead(
                        at=at,
                        actor=translate.MODEL,
                        op_id=op_id,
                        asset=asset,
                        timings=observation.timings,
                    )
                )
            case api.MediaFailed():
                await self._fail(room, asset, translate.code(observation.code), observation.message)
            case _:
                assert_never(observation)

    async def _keep_rows(
        self, room: Room, asset: str, seen: _Seen, rows: list[api.TextRow | api.LabRow]
    ) -> None:
        fresh = [row for row in rows if row.id not in seen.rows]
        seen.rows.update(row.id for row in fresh)
        for start in range(0, len(fresh), MAX_ROWS_AN_EVENT):
            part = fresh[start : start + MAX_ROWS_AN_EVENT]
            observed = AssetObserved(
                at=self._now_ms(),
                actor=translate.MODEL,
                asset=asset,
                rows=tuple(translate.row(row) for row in part),
            )
            await room.record(observed)
        # Marks also of rows that were in the log before: a crash may have come in between.
        for row in rows:
            if isinstance(row, api.LabRow):
                await self._mark(room, asset, row)

    async def _mark(self, room: Room, asset: str, row: api.LabRow) -> None:
        mark = translate.out_of_range_mark(asset, row)
        if mark is not None:
            put = AnnotationPut(
                at=self._now_ms(), actor=translate.MODEL, op_id=mark.id, annotation=mark
            )
            await room.record(put)

    async def _fail(self, room: Room, asset: str, code: ErrorCode, message: str) -> None:
        failed = AssetFailed(
            at=self._now_ms(),
            actor=translate.SERVER,
            op_id=f"failed:{asset}",
            asset=asset,
            code=code,
            message=message,
        )
        await room.record(failed)

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)


_Single = api.Detected | api.LevelReady | api.Progress | api.Completed | api.MediaFailed


class _Seen:
    """What the log holds of a look that a crash cut off."""

    def __init__(self, asset: AssetState) -> None:
        self.rows = {row.id for row in asset.rows}
        self.levels = {level.level for level in asset.levels}


def unread(state: RoomState) -> list[AssetState]:
    """The assets that are committed and were not looked at to the end."""
    return [asset for asset in state.assets.values() if asset.status == "committed"]
