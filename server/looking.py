"""A committed asset and the engine's perception: what is seen becomes events of the room."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import assert_never, cast

from engine import api
from protocol import codec
from protocol.errors import ErrorCode
from protocol.events import (
    AnnotationPut,
    AssetDetected,
    AssetFailed,
    AssetKeyframe,
    AssetLevel,
    AssetObserved,
    AssetRead,
    Event,
)
from protocol.messages import AssetProgress, CameraState
from protocol.room import MAX_KEYFRAMES, RoomState
from protocol.shapes import Level, ObservedRow, SpeechRow
from protocol.state import AssetState
from server import translate
from server.assets import Assets
from server.background import Background
from server.gather import Gather
from server.hub import Hosted, Hub
from server.leases import Leases
from server.log import LogUnavailable
from server.room import Room

ROWS_S = 0.05
MAX_ROWS_AN_EVENT = 64
LEASE_CHECK_S = 1.0


class Looking:
    """Looks at assets, each once at a time, and only one of the processes that could."""

    def __init__(
        self,
        engine: api.Engine,
        assets: Assets,
        hub: Hub,
        leases: Leases,
        background: Background,
        wall: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._assets = assets
        self._hub = hub
        self._leases = leases
        self._background = background
        self._wall = wall
        self._looked_at: set[str] = set()
        # Called with the room in which something was read to its end.
        self.on_read: Callable[[str], None] = lambda room: None

    def look(self, room: str, asset: str, declared_type: str | None = None) -> None:
        """Start to look at a committed asset; does nothing while that is under way."""
        if asset not in self._looked_at:
            self._looked_at.add(asset)
            self._background.spawn(self._look(room, asset, declared_type), f"look at {asset}")

    async def _look(self, room: str, asset: str, declared_type: str | None) -> None:
        hosted = await self._hub.enter(room)
        try:
            while (state := await self._committed(hosted, asset)) is not None:
                if await self._take(room, asset):
                    try:
                        await self._observe(hosted, state, declared_type)
                    finally:
                        await self._leases.let_go(room, _lease(asset))
                    return
                await asyncio.sleep(LEASE_CHECK_S)
        finally:
            self._looked_at.discard(asset)
            self._hub.leave(hosted)

    async def _committed(self, hosted: Hosted, asset: str) -> AssetState | None:
        """The asset if it still has to be looked at."""
        state = await hosted.room.between(lambda state: state.assets.get(asset), fresh=True)
        return state if state is not None and state.status == "committed" else None

    async def _take(self, room: str, asset: str) -> bool:
        try:
            return await self._leases.take(room, _lease(asset))
        except LogUnavailable:
            return False

    async def _observe(self, hosted: Hosted, asset: AssetState, declared_type: str | None) -> None:
        assert asset.sha256 is not None
        media = api.Media(
            id=asset.asset,
            tenant=hosted.room.name,
            path=str(self._assets.original(asset.sha256)),
            name=asset.name,
            derived_dir=str(self._assets.work_folder(asset.asset)),
            # Raw samples do not say themselves what they are.
            declared_type=declared_type or asset.media_type or None,
        )
        gather = Gather(self._engine.open(media), ROWS_S)
        seen = _Seen(asset.asset, asset.rows)
        try:
            async for group in gather.groups():
                # One append for what came together: what was seen first is numbered first.
                await hosted.room.record(*await self._events(hosted.room, seen, group))
                if isinstance(group[-1], api.Completed | api.MediaFailed):
                    self.on_read(hosted.room.name)
                    return
            code, message = ErrorCode.ENGINE_LOST, "the look at it ended without an end"
            await hosted.room.record(self._failure(asset.asset, code, message))
        except OSError as error:
            message = f"its levels cannot be kept: {error.strerror}"
            failure = self._failure(asset.asset, ErrorCode.INTERNAL, message)
            await hosted.room.record(failure)
        finally:
            await gather.close()

    @asynccontextmanager
    async def alone(self, room: str, asset: str) -> AsyncIterator[None]:
        """Keep everybody else, here and at other processes, from looking at an asset.

        A recording that is committed and still written down looks as if nobody had read it.
        """
        self._looked_at.add(asset)
        await self._take(room, asset)
        try:
            yield
        finally:
            self._looked_at.discard(asset)
            await self._leases.let_go(room, _lease(asset))

    async def follow(
        self,
        hosted: Hosted,
        asset: str,
        observations: AsyncIterator[api.Observation],
        said: Callable[[list[api.Speech]], Awaitable[None]] | None = None,
    ) -> api.Completed | None:
        """Record what is seen of an asset that is still coming, all but its end.

        Returns the end; None when the look failed or was lost, of which nothing is recorded.
        """
        gather, seen = Gather(observations, ROWS_S), _Seen(asset, ())
        try:
            async for group in gather.groups():
                end = group[-1]
                if isinstance(end, api.Completed | api.MediaFailed):
                    group.pop()
                await hosted.room.record(*await self._events(hosted.room, seen, group))
                if said is not None:
                    await said([row for row in group if isinstance(row, api.Speech)])
                if isinstance(end, api.Completed):
                    return end
                if isinstance(end, api.MediaFailed):
                    return None
            return None
        finally:
            await gather.close()

    async def _events(self, room: Room, seen: _Seen, group: list[api.Observation]) -> list[Event]:
        events: list[Event] = []
        for is_rows, run in itertools.groupby(group, _is_row):
            if is_rows:
                events += self._row_events(seen, cast(list[_Row], list(run)))
            else:
                for observation in run:
                    events += await self._single(room, seen, cast(_Single, observation))
        return events

    async def _single(self, room: Room, seen: _Seen, observation: _Single) -> list[Event]:
        at, actor, asset = self.now_ms(), translate.MODEL, seen.asset
        match observation:
            case api.Detected():
                return [
                    AssetDetected(
                        at=at,
                        actor=actor,
                        op_id=f"detected:{asset}",
                        asset=asset,
                        media_type=observation.media_type,
                        width=observation.width,
                        height=observation.height,
                        orientation=observation.orientation,
                        mismatch=observation.mismatch,
                        frames=observation.frames,
                        imaging=translate.imaging(observation.imaging),
                        duration_s=observation.duration_s,
                    )
                ]
            case api.LevelReady():
                return await self._level(seen, observation)
            case api.Keyframe():
                await self._forget_outlived(observation)
                keyframe = translate.keyframe(observation)
                return [AssetKeyframe(at=at, actor=actor, asset=asset, keyframe=keyframe)]
            case api.Progress(stage=stage, done=done, total=total):
                self._show(room, AssetProgress(asset=asset, stage=stage, done=done, total=total))
                return []
            case api.Stills():
                self._show(room, translate.camera_state(observation))
                return []
            case api.Completed(timings=timings):
                op_id = f"read:{asset}"
                return [AssetRead(at=at, actor=actor, op_id=op_id, asset=asset, timings=timings)]
            case api.MediaFailed(message=message):
                return [self._failure(asset, translate.code(observation.code), message)]
            case _:
                assert_never(observation)

    def _show(self, room: Room, told: AssetProgress | CameraState) -> None:
        """Tell what no log keeps to everybody who is here, wherever they are connected."""
        key, frame = told.coalesce_key(), codec.encode(told)
        room.show(key, frame)
        self._hub.neighbours.shown(room.name, key, frame)

    async def _forget_outlived(self, keyframe: api.Keyframe) -> None:
        """Delete the still that leaves the room's state with this one."""
        if keyframe.frame >= MAX_KEYFRAMES:
            await self._assets.forget_frame(keyframe.media, keyframe.frame - MAX_KEYFRAMES)

    def _failure(self, asset: str, code: ErrorCode, message: str) -> AssetFailed:
        return AssetFailed(
            at=self.now_ms(),
            actor=translate.SERVER,
            op_id=f"failed:{asset}",
            asset=asset,
            code=code,
            message=message,
        )

    async def _level(self, seen: _Seen, ready: api.LevelReady) -> list[Event]:
        await self._assets.keep_level(seen.asset, ready.level, ready.path)
        level = Level(
            level=ready.level, width=ready.width, height=ready.height, media_type=ready.media_type
        )
        op_id = f"level:{seen.asset}:{ready.level}"
        at, actor = self.now_ms(), translate.MODEL
        return [AssetLevel(at=at, actor=actor, op_id=op_id, asset=seen.asset, level=level)]

    def _row_events(self, seen: _Seen, rows: list[_Row]) -> list[Event]:
        at, actor, asset = self.now_ms(), translate.MODEL, seen.asset
        fresh = [row for row in rows if row.id not in seen.rows]
        seen.rows.update(row.id for row in fresh if _is_final(row))
        events: list[Event] = []
        for start in range(0, len(fresh), MAX_ROWS_AN_EVENT):
            part = tuple(translate.row(row) for row in fresh[start : start + MAX_ROWS_AN_EVENT])
            events.append(AssetObserved(at=at, actor=actor, asset=asset, rows=part))
        # Marks also of rows that were in the log before: a crash may have come in between.
        for row in rows:
            mark = translate.out_of_range_mark(asset, row) if isinstance(row, api.LabRow) else None
            if mark is not None:
                events.append(AnnotationPut(at=at, actor=actor, op_id=mark.id, annotation=mark))
        return events

    def now_ms(self) -> int:
        """The server's clock, as events carry it."""
        return int(self._wall() * 1000)


_Row = api.TextRow | api.LabRow | api.Speech
_Single = (
    api.Detected
    | api.LevelReady
    | api.Keyframe
    | api.Stills
    | api.Progress
    | api.Completed
    | api.MediaFailed
)


def _lease(asset: str) -> str:
    return f"look:{asset}"


def _is_row(observation: api.Observation) -> bool:
    return isinstance(observation, _Row)


def _is_final(row: _Row) -> bool:
    return not isinstance(row, api.Speech) or row.final


class _Seen:
    """The asset that is looked at, and the rows of it that are in the log."""

    def __init__(self, asset: str, rows: tuple[ObservedRow, ...]) -> None:
        self.asset = asset
        # A row that is not final may still be replaced by a better one.
        self.rows = {row.id for row in rows if not isinstance(row, SpeechRow) or row.final}


def unread(state: RoomState) -> list[AssetState]:
    """The assets that are committed and were not looked at to the end."""
    return [asset for asset in state.assets.values() if asset.status == "committed"]
