"""Upload streams with credit and resume, from `stream.open` to a committed asset."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Protocol

import msgspec

from protocol.errors import ErrorCode, OpRefused
from protocol.events import AssetCommitted, AssetFailed, AssetOpened
from protocol.messages import StreamOpen
from protocol.shapes import Actor
from server import translate
from server.assets import Assets, Disk
from server.background import Background
from server.camera import Camera, ended
from server.camera import Watch as CameraWatch
from server.hub import Hosted, Hub
from server.leases import Leases
from server.log import LogUnavailable
from server.upload import Claim, Listener, Refused, Upload, claim_path, forget

# How long another process may take to let go of an upload that is gone on with here.
HAND_OVER_S = 3.0
LEASE_CHECK_S = 0.05


class Look(Protocol):
    """What happens to an asset after it was committed."""

    def __call__(self, room: str, asset: str, declared_type: str | None) -> None:
        """Start to look at it; returns at once."""
        ...


Coming = Upload | Camera


class Hear(Protocol):
    """Who listens to a microphone from its first byte on."""

    def __call__(self, claim: Claim) -> Listener:
        """Start to listen; returns at once."""
        ...


class Watch(Protocol):
    """Who watches a camera."""

    def __call__(self, camera: Camera) -> CameraWatch:
        """Start to watch; returns at once."""
        ...


class Ingest:
    """All uploads of this process."""

    def __init__(
        self,
        assets: Assets,
        disk: Disk,
        hub: Hub,
        leases: Leases,
        background: Background,
        look: Look,
        hear: Hear,
        watch: Watch,
        wall: Callable[[], float],
        *,
        max_asset_bytes: int,
        max_streams: int,
        credit_bytes: int,
        resume_s: float,
        room_uploads: int,
        room_assets: int,
    ) -> None:
        self.max_asset_bytes = max_asset_bytes
        self.max_streams = max_streams
        self.credit_bytes = credit_bytes
        self._resume_s = resume_s
        self._room_uploads = room_uploads
        self._room_assets = room_assets
        self._assets = assets
        self._disk = disk
        self._hub = hub
        self._leases = leases
        self._background = background
        self._look = look
        self._hear = hear
        self._watch = watch
        self._wall = wall
        self._uploads: dict[str, Coming] = {}

    def is_coming(self, asset: str) -> bool:
        """Whether the asset's bytes are on their way here."""
        return asset in self._uploads

    async def open(self, hosted: Hosted, by: Actor, message: StreamOpen) -> Coming:
        """Start an upload or find the one to go on with; raises `Refused` or `OSError`."""
        if message.size is not None and message.size > self.max_asset_bytes:
            raise Refused(ErrorCode.MEDIA_TOO_BIG, f"the limit is {self.max_asset_bytes} bytes")
        if message.asset is not None:
            return await self._go_on(hosted, by, message.asset)
        await self._check_space(hosted)
        claim = Claim(
            asset="a" + secrets.token_hex(12),
            room=hosted.room.name,
            by=by,
            name=message.name,
            media_type=message.media_type,
            size=message.size,
            sha256=message.sha256,
            kind=message.kind,
            asks=message.asks,
        )
        return await self._begin(claim, is_new=True)

    async def _begin(self, claim: Claim, *, is_new: bool) -> Coming:
        upload = self._upload(claim)
        try:
            await upload.prepare()
        except BaseException:
            del self._uploads[claim.asset]
            raise
        if isinstance(upload, Camera):
            upload.listener = self._watch(upload)
        elif claim.is_live and is_new:
            upload.listener = self._hear(claim)
        self._background.spawn(self._run(upload), f"upload {claim.asset}")
        return upload

    async def _check_space(self, hosted: Hosted) -> None:
        """Raise `Refused` when the room has no place for another asset."""
        room = hosted.room.name
        coming = sum(upload.claim.room == room for upload in self._uploads.values())
        if coming >= self._room_uploads:
            raise Refused(ErrorCode.STREAM_LIMIT, f"{coming} uploads of this room are under way")
        try:
            known = await hosted.room.between(lambda state: len(state.assets))
        except OpRefused as error:
            raise Refused(error.code, error.message) from None
        if known >= self._room_assets or hosted.room.is_full:
            raise Refused(ErrorCode.ROOM_FULL, f"the room has {known} assets")

    async def _go_on(self, hosted: Hosted, by: Actor, asset: str) -> Coming:
        upload = self._uploads.get(asset)
        if upload is None:
            claim = await self._disk.do(lambda: self._read_claim(asset))
            # A server that was killed may have left the claim of an asset that has its end.
            is_theirs = claim is not None and _is_of(claim, hosted, by)
            if claim is not None and is_theirs and await _is_open(hosted, asset):
                await self._take_over(claim)
                upload = self._uploads.get(asset) or await self._begin(claim, is_new=False)
        if upload is None or not _is_of(upload.claim, hosted, by):
            raise Refused(ErrorCode.ASSET_UNKNOWN, "no such upload of yours is open here")
        # Another socket may have begun with it a moment ago, and its offset is not known before.
        await upload.prepare()
        return upload

    async def _take_over(self, claim: Claim) -> None:
        """Get the lease of an upload from the process that has it; raises `Refused`."""
        try:
            async with asyncio.timeout(HAND_OVER_S):
                while not await self._leases.take(claim.room, _lease(claim.asset)):
                    self._hub.neighbours.hand_over(claim.room, claim.asset)
                    await asyncio.sleep(LEASE_CHECK_S)
        except (LogUnavailable, TimeoutError):
            text = "another process has the upload; try again"
            raise Refused(ErrorCode.UNAVAILABLE, text, is_final=False) from None

    def hand_over(self, asset: str) -> None:
        """Let another process go on with an upload."""
        if (upload := self._uploads.get(asset)) is not None:
            upload.hand_over()

    def _upload(self, claim: Claim) -> Coming:
        path = self._assets.upload(claim.asset)
        upload: Coming
        if claim.kind == "camera":
            upload = Camera(claim, path, self._disk)
        else:
            upload = Upload(claim, path, self._disk, self.max_asset_bytes)
        self._uploads[claim.asset] = upload
        return upload

    def _read_claim(self, asset: str) -> Claim | None:
        try:
            raw = claim_path(self._assets.upload(asset)).read_bytes()
            return msgspec.json.decode(raw, type=Claim)
        except (OSError, ValueError, msgspec.DecodeError):
            return None

    async def _run(self, upload: Coming) -> None:
        """Bring one upload to its end, with its room loaded all the while."""
        claim = upload.claim
        # Of an upload that is gone on with the log may have it already, and then drops it.
        opened = AssetOpened(
            at=self._now_ms(),
            actor=claim.by,
            op_id=f"opened:{claim.asset}",
            asset=claim.asset,
            name=claim.name,
            kind=claim.kind,
            size=claim.size,
            media_type=claim.media_type if claim.kind != "file" else "",
        )
        hosted = await self._hub.enter(claim.room)
        try:
            await self._hold(claim)
            # Recorded while the bytes already come: the first picture need not wait for it.
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(hosted.room.record(opened))
                outcome = await self._outcome(upload)
            await self._finish(hosted, upload, outcome)
        finally:
            self._uploads.pop(claim.asset, None)
            await self._leases.let_go(claim.room, _lease(claim.asset))
            self._hub.leave(hosted)

    async def _hold(self, claim: Claim) -> None:
        """Tell the other processes that the upload comes here."""
        try:
            await self._leases.take(claim.room, _lease(claim.asset))
        except LogUnavailable:
            # Its bytes are on the disk and its events wait for the log: nothing is lost.
            return

    async def _outcome(self, upload: Coming) -> str | Refused:
        """Receive and store the bytes: their SHA-256, "" of a camera, or why there is none."""
        try:
            sha256 = await upload.receive_all(self._resume_s)
            if isinstance(upload, Camera):
                return ""
            await self._assets.keep(upload.path, sha256)
        except Refused as refusal:
            return refusal
        except OSError as error:
            return Refused(ErrorCode.UNAVAILABLE, error.strerror or "the disk", is_final=False)
        return sha256

    async def _finish(self, hosted: Hosted, upload: Coming, outcome: str | Refused) -> None:
        claim, listener = upload.claim, upload.listener
        if isinstance(outcome, Refused):
            if listener is not None:
                listener.abandon()
            if outcome.is_final:
                await self._fail(hosted, claim.asset, outcome.code, outcome.message)
            else:
                self._wait_for_more(claim)
            self._tell(upload, code=outcome.code, message=outcome.message)
            return
        if isinstance(upload, Camera):
            assert upload.listener is not None, "a camera is watched from its beginning"
            upload.listener.committed()
            self._tell(upload)
            await self._disk.do(lambda: claim_path(upload.path).unlink(missing_ok=True))
            return
        committed = AssetCommitted(
            at=self._now_ms(),
            actor=claim.by,
            op_id=f"committed:{claim.asset}",
            asset=claim.asset,
            size=upload.received,
            sha256=outcome,
        )
        await hosted.room.record(committed)
        self._tell(upload, sha256=outcome)
        if listener is not None:
            listener.committed()
        else:
            self._look(claim.room, claim.asset, claim.media_type or None)
        await self._disk.do(lambda: claim_path(upload.path).unlink(missing_ok=True))

    async def _fail(self, hosted: Hosted, asset: str, code: ErrorCode, message: str) -> None:
        await hosted.room.record(self.failure(asset, code, message))
        path = self._assets.upload(asset)
        await self._disk.do(lambda: forget(path))

    def _wait_for_more(self, claim: Claim) -> None:
        name = f"abandon {claim.asset}"
        self._background.spawn(self.abandon_later(claim.room, claim.asset), name)

    def failure(self, asset: str, code: ErrorCode, message: str) -> AssetFailed:
        """Build the event that ends an upload; the same end of the same asset is one act."""
        return AssetFailed(
            at=self._now_ms(),
            actor=translate.SERVER,
            op_id=f"failed:{asset}",
            asset=asset,
            code=code,
            message=message,
        )

    async def abandon_later(self, room: str, asset: str) -> None:
        """Fail an open asset that nobody sends any more, unless somebody goes on in time.

        What a microphone sent before is kept: it is all that was said.
        """
        is_elsewhere = True
        while is_elsewhere:
            await asyncio.sleep(self._resume_s)
            is_elsewhere = await self._is_elsewhere(room, asset)
        hosted = await self._hub.enter(room)
        try:
            known = await hosted.room.between(lambda state: state.assets.get(asset), fresh=True)
            claim = await self._disk.do(lambda: self._read_claim(asset))
            if known is None or known.status != "open" or self.is_coming(asset):
                return
            if known.kind == "camera":
                await hosted.room.record(ended(asset, self._now_ms()))
                path = self._assets.upload(asset)
                await self._disk.do(lambda: forget(path))
            elif claim is not None and claim.is_live:
                upload = self._upload(claim)
                await upload.prepare()
                upload.finish()
                await self._run(upload)
            else:
                message = "the upload was not resumed"
                await self._fail(hosted, asset, ErrorCode.UPLOAD_ABANDONED, message)
        finally:
            self._hub.leave(hosted)

    async def _is_elsewhere(self, room: str, asset: str) -> bool:
        if not self._leases.is_shared or self.is_coming(asset):
            return False
        try:
            return await self._leases.is_taken(room, _lease(asset))
        except LogUnavailable:
            return True

    def _tell(
        self,
        upload: Coming,
        *,
        sha256: str | None = None,
        code: ErrorCode | None = None,
        message: str = "",
    ) -> None:
        # Whoever hears of the end may begin the next at once, and has a place for it.
        self._uploads.pop(upload.claim.asset, None)
        if upload.peer is not None:
            upload.peer.ended(sha256, code, message)

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)


def _is_of(claim: Claim, hosted: Hosted, by: Actor) -> bool:
    return claim.room == hosted.room.name and claim.by.id == by.id


async def _is_open(hosted: Hosted, asset: str) -> bool:
    """Whether the asset has no end in the room, if the room knows of it."""
    try:
        known = await hosted.room.between(lambda state: state.assets.get(asset))
    except OpRefused as error:
        raise Refused(error.code, error.message) from None
    return known is None or known.status == "open"


def _lease(asset: str) -> str:
    return f"upload:{asset}"
