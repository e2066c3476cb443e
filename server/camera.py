"""Cameras: stills that come in pieces; the newest goes to the engine and none is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from engine import api
from protocol.errors import ErrorCode
from protocol.events import AssetRead
from protocol.media import Flags, MediaFrame
from protocol.shapes import Actor
from server import translate
from server.assets import Assets, Disk
from server.background import Background
from server.hub import Hosted, Hub
from server.looking import Looking
from server.upload import Claim, Refused, UploadPeer, claim_path

log = structlog.get_logger(__name__)

MAX_STILL_BYTES = 8 * 1024 * 1024
# A camera that lost the engine tries again after this long; the stills meanwhile are passed over.
AGAIN_S = 2.0


class Stills:
    """Puts the pieces of a camera's stills together; at most one whole one waits."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.dropped = 0
        self.refused = 0
        self.code: api.EngineCode | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._pts_us: int | None = None
        self._is_holed = False
        self._next_sequence = 0
        self._waiting: tuple[bytes, int] | None = None

    def take(self, frame: MediaFrame) -> None:
        """Add a piece; one that is missing costs its still, and so does one that is too large."""
        is_gap = frame.sequence != self._next_sequence
        self._next_sequence = frame.sequence + 1
        if frame.pts_us != self._pts_us:
            if self._pts_us is not None:
                self._refuse(api.EngineCode.MEDIA_TRUNCATED)
            self._parts, self._size, self._pts_us = [], 0, frame.pts_us
            self._is_holed = is_gap = False
        self._is_holed |= is_gap
        self._size += len(frame.payload)
        if self._size <= MAX_STILL_BYTES and not self._is_holed:
            self._parts.append(frame.payload)
        else:
            self._parts.clear()
        if frame.flags & Flags.LAST_OF_STILL:
            if self._is_holed:
                self._refuse(api.EngineCode.MEDIA_TRUNCATED)
            elif self._size > MAX_STILL_BYTES:
                self._refuse(api.EngineCode.MEDIA_TOO_BIG)
            elif self._parts:
                self.dropped += self._waiting is not None
                self.code = None
                self._waiting = (b"".join(self._parts), frame.pts_us)
                self.changed.set()
            self._parts, self._size, self._pts_us = [], 0, None

    def newest(self) -> tuple[bytes, int] | None:
        """Return the whole still that waits, once."""
        still, self._waiting = self._waiting, None
        return still

    def counted(self, told: api.Stills) -> api.Stills:
        """Add what never reached the engine to what it tells."""
        return msgspec.structs.replace(
            told,
            dropped=told.dropped + self.dropped,
            refused=told.refused + self.refused,
            code=told.code or self.code,
        )

    def _refuse(self, code: api.EngineCode) -> None:
        self.refused += 1
        self.code = code


class Camera:
    """One camera under way, in the place of an `Upload`: the same peers, leases and resumption."""

    def __init__(self, claim: Claim, path: Path, disk: Disk) -> None:
        self.claim = claim
        self.path = path
        self.received = 0
        self.accepted = 0
        self.peer: UploadPeer | None = None
        self.listener: Watch | None = None
        self.stills = Stills()
        self._disk = disk
        self._changed = asyncio.Event()
        self._is_finished = False
        self._is_handed_over = False

    async def prepare(self) -> None:
        """Leave a claim, so that another run of the server knows whose camera it is."""
        await self._disk.do(self._write_claim)

    def take_chunk(self, frame: MediaFrame) -> None:
        """Take a piece of a still that the peer's credit allowed; it is never written down."""
        self.stills.take(frame)
        self.received += len(frame.payload)
        if self.peer is not None:
            self.peer.granted(self.received, len(frame.payload))
        self._changed.set()

    def finish(self) -> None:
        """Say that the camera is off."""
        self._is_finished = True
        self._changed.set()

    def give_up(self) -> None:
        """Say that the camera is off; what was seen of it stays."""
        self.finish()

    def hand_over(self) -> None:
        """Let another process go on with it."""
        self._is_handed_over = True
        self._changed.set()

    async def receive_all(self, idle_s: float) -> str:
        """Wait until the camera is off, or does not come back for `idle_s`; raises `Refused`."""
        while not self._is_finished:
            if self._is_handed_over:
                text = "another process goes on with it"
                raise Refused(ErrorCode.REPLACED, text, is_final=False)
            self._changed.clear()
            try:
                async with asyncio.timeout(idle_s):
                    await self._changed.wait()
            except TimeoutError:
                self._is_finished = self.peer is None
        return ""

    def _write_claim(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        claim_path(self.path).write_bytes(msgspec.json.encode(self.claim))


class Watching:
    """Begins to watch cameras."""

    def __init__(
        self, engine: api.Engine, assets: Assets, hub: Hub, looking: Looking, background: Background
    ) -> None:
        self.engine = engine
        self.assets = assets
        self.hub = hub
        self.looking = looking
        self._background = background

    def begin(self, camera: Camera) -> Watch:
        """Watch a camera that begins now, or goes on."""
        watch = Watch(self, camera)
        self._background.spawn(watch.run(), f"camera {camera.claim.asset}")
        return watch


class Watch:
    """One camera's way through the engine, over its losses."""

    def __init__(self, watching: Watching, camera: Camera) -> None:
        self._watching = watching
        self._camera = camera
        self._end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def committed(self) -> None:
        """The camera is off."""
        self._finish(True)

    def abandon(self) -> None:
        """Another process goes on with it."""
        self._finish(False)

    def _finish(self, is_over: bool) -> None:
        if not self._end.done():
            self._end.set_result(is_over)
            self._camera.stills.changed.set()

    async def run(self) -> None:
        """Watch to the end; an engine that is lost is asked again while the camera goes on."""
        claim, looking = self._camera.claim, self._watching.looking
        hosted = await self._watching.hub.enter(claim.room)
        try:
            async with looking.alone(claim.room, claim.asset):
                while not self._end.done():
                    await self._watch(hosted)
                    await asyncio.wait({self._end}, timeout=AGAIN_S)
            if self._end.result():
                await hosted.room.record(ended(claim.asset, self._now_ms()))
        finally:
            self._watching.hub.leave(hosted)

    async def _watch(self, hosted: Hosted) -> None:
        claim, watching = self._camera.claim, self._watching
        known = await hosted.room.between(lambda state: state.assets.get(claim.asset))
        media = api.Media(
            id=claim.asset,
            tenant=claim.room,
            path=None,
            name=claim.name,
            derived_dir=str(watching.assets.work_folder(claim.asset)),
            declared_type="image/jpeg",
            is_camera=True,
            first_frame=known.keyframes[-1].frame + 1 if known and known.keyframes else 0,
        )
        observations = self._counted(watching.engine.open(media))
        feeding = asyncio.create_task(self._feed())
        try:
            await watching.looking.follow(hosted, claim.asset, observations)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _counted(
        self, observations: AsyncIterator[api.Observation]
    ) -> AsyncIterator[api.Observation]:
        stills = self._camera.stills
        try:
            async for each in observations:
                yield stills.counted(each) if isinstance(each, api.Stills) else each
        finally:
            if isinstance(observations, AsyncGenerator):
                await observations.aclose()

    async def _feed(self) -> None:
        """Hand the newest still to the engine; its loss is told by its observations."""
        engine, stills, asset = self._watching.engine, self._camera.stills, self._camera.claim.asset
        with suppress(api.EngineError):
            while not self._end.done():
                if (still := stills.newest()) is not None:
                    await engine.feed(asset, *still)
                    continue
                stills.changed.clear()
                if not self._end.done():
                    await stills.changed.wait()
            await engine.close(asset)

    def _now_ms(self) -> int:
        return self._watching.looking.now_ms()


def ended(asset: str, at: int, actor: Actor = translate.SERVER) -> AssetRead:
    """Build the event that ends a camera; the same end of the same camera is one act."""
    return AssetRead(at=at, actor=actor, op_id=f"read:{asset}", asset=asset)
