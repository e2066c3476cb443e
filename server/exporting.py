"""`GET /v1/rooms/{room}/export`: gathers a case and has it written by a process of its own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from protocol.errors import ErrorCode, OpRefused, ProtocolError
from protocol.messages import Hello
from protocol.state import AssetState, Snapshot
from server.assets import Assets, Disk
from server.auth import Auth, Holder, is_name
from server.export import ndjson
from server.export.case import Case, Files
from server.export.formats import FORMATS, NDJSON
from server.export.worker import Outcome
from server.export.worker import Request as Work
from server.hub import Hub
from server.log import Gap, Log, LogUnavailable
from server.pages import HEADERS, Unknown, refusal

log = structlog.get_logger(__name__)

MAX_AT_ONCE = 2
TIMEOUT_S = 180.0
_CHUNK_BYTES = 256 * 1024
_TIMES_PAGE = 256
_TIMES_PAGE_BYTES = 1024 * 1024
_BEARER = "bearer "


class NoExport(ProtocolError):
    """The export that was asked for cannot be made."""

    code = ErrorCode.EXPORT_IMPOSSIBLE


class Exporting:
    """Writes rooms in the formats of `server.export`, `MAX_AT_ONCE` at a time."""

    def __init__(
        self,
        auth: Auth,
        hub: Hub,
        room_log: Log,
        assets: Assets,
        disk: Disk,
        folder: Path,
        wall: Callable[[], float],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.timeout_s = timeout_s
        self._auth = auth
        self._hub = hub
        self._log = room_log
        self._assets = assets
        self._disk = disk
        self._folder = folder
        self._wall = wall
        self._running = 0

    def routes(self) -> list[Route]:
        """The route under `/v1/rooms/{room}`."""
        return [Route("/v1/rooms/{room}/export", self.export, methods=["GET"])]

    async def export(self, request: Request) -> Response:
        """The room in one format, for whoever may see it."""
        room, name = request.path_params["room"], request.query_params.get("format", "")
        try:
            holder = self._holder(request, room)
            if name not in FORMATS:
                formats = ", ".join(FORMATS)
                raise NoExport(f"format is one of {formats}", code=ErrorCode.EXPORT_FORMAT)
            if name == NDJSON:
                return await self._raw(room)
            return await self._written(name, room, holder, str(request.base_url))
        except LogUnavailable:
            return refusal(OpRefused("not readable now", code=ErrorCode.UNAVAILABLE))
        except ProtocolError as error:
            return refusal(error)

    def _holder(self, request: Request, room: str) -> Holder:
        """Who asks: by a ticket as for pictures, or by a room token, for programs without one."""
        if not is_name(room):
            raise Unknown("no such room", code=ErrorCode.ASSET_UNKNOWN)
        header = request.headers.get("authorization", "")
        if not header.lower().startswith(_BEARER):
            return self._auth.check_ticket(request.query_params.get("ticket"), room)
        token = header[len(_BEARER) :].strip()
        session = hashlib.sha256(token.encode()).hexdigest()
        identity = self._auth.admit(Hello(session=session, client="export", token=token), room)
        return Holder(identity.participant, identity.role)

    async def _raw(self, room: str) -> Response:
        lines = ndjson.pages(self._log, room)
        # The first page is read before the status is sent, so that a refusal can be.
        first = await anext(lines, b"")

        async def rest() -> AsyncIterator[bytes]:
            yield first
            async for page in lines:
                yield page

        return StreamingResponse(
            rest(),
            media_type=FORMATS[NDJSON].media_type,
            headers=_headers(room, FORMATS[NDJSON].suffix),
        )

    async def _written(self, name: str, room: str, holder: Holder, base: str) -> Response:
        if self._running >= MAX_AT_ONCE:
            raise OpRefused("other exports are being written", code=ErrorCode.OVERLOADED)
        self._running += 1
        try:
            case = await self._case(room, holder, base)
            file = await self._disk.do(self._nameless)
            try:
                outcome = await self._run(Work(format=name, case=case), file)
                size = await self._disk.do(lambda: os.fstat(file.fileno()).st_size)
            except BaseException:
                file.close()
                raise
        finally:
            self._running -= 1
        headers = {**_headers(room, outcome.suffix), "Content-Length": str(size)}
        chunks = self._chunks(file)
        return StreamingResponse(chunks, media_type=outcome.media_type, headers=headers)

    def _nameless(self) -> BinaryIO:
        # Without a name nothing of it stays behind, however this process ends.
        return cast(BinaryIO, tempfile.TemporaryFile(dir=self._folder))

    async def _chunks(self, file: BinaryIO) -> AsyncIterator[bytes]:
        try:
            await self._disk.do(lambda: file.seek(0))
            while chunk := await self._disk.do(lambda: file.read(_CHUNK_BYTES)):
                yield chunk
        finally:
            file.close()

    async def _run(self, work: Work, file: BinaryIO) -> Outcome:
        # The secret that signs tokens is nothing for a process that reads strangers' files.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CONSILIUM_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "server.export.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=file.fileno(),
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        asked = await self._disk.do(lambda: msgspec.msgpack.encode(work))
        try:
            async with asyncio.timeout(self.timeout_s):
                _, told = await process.communicate(asked)
        except TimeoutError:
            raise NoExport(f"not written within {self.timeout_s:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            # The last line has the kind of the fault; what is before it may quote the room.
            kind = told.decode(errors="replace").strip().rpartition("\n")[2].partition(":")[0]
            log.error("export failed", format=work.format, status=process.returncode, kind=kind)
            raise NoExport("the room could not be written in this format")
        outcome = msgspec.json.decode(told.rpartition(b"\n")[2], type=Outcome)
        if outcome.refused:
            raise NoExport(outcome.refused)
        return outcome

    async def _case(self, room: str, holder: Holder, base: str) -> Case:
        hosted = await self._hub.enter(room)
        try:
            snapshot = await hosted.room.between(lambda state: state.snapshot(), fresh=True)
        finally:
            self._hub.leave(hosted)
        marked: dict[str, set[int]] = {}
        for mark in snapshot.annotations:
            target = mark.annotation.target
            marked.setdefault(target.asset, set()).add(target.frame)
        return Case(
            room=room,
            base=base,
            at=int(self._wall() * 1000),
            snapshot=snapshot,
            times=await self._times(room, snapshot),
            files={
                asset.asset: self._files(asset, marked.get(asset.asset, set()))
                for asset in snapshot.assets
            },
            may_identify=holder.role == "chair",
        )

    def _files(self, asset: AssetState, frames: set[int]) -> Files:
        """Where an asset's bytes lie; of frames, those with marks and the first still."""
        numbers = {keyframe.frame for keyframe in asset.keyframes}
        wanted = frames & numbers if numbers else frames if asset.imaging else set()
        wanted |= set(sorted(numbers)[:1])
        full = next((level for level in asset.levels if level.level == 0), None)
        return Files(
            original="" if asset.sha256 is None else str(self._assets.original(asset.sha256)),
            picture="" if full is None else str(self._assets.level(asset.asset, 0)),
            picture_type="" if full is None else full.media_type,
            frames={number: str(self._assets.frame(asset.asset, number)) for number in wanted},
        )

    async def _times(self, room: str, snapshot: Snapshot) -> dict[int, int]:
        """When the marks were made and changed, which the state does not say."""
        wanted = {
            seq
            for mark in snapshot.annotations
            if not mark.deleted
            for seq in (mark.seq, mark.changed_seq)
        }
        times: dict[int, int] = {}
        read_to = 0
        for seq in sorted(wanted):
            if seq <= read_to:
                continue
            page = await self._log.page(
                room,
                snapshot.epoch,
                seq - 1,
                max_events=_TIMES_PAGE,
                max_bytes=_TIMES_PAGE_BYTES,
            )
            if isinstance(page, Gap) or not page.events:
                # Of what the log no longer has, the time is not known.
                continue
            times |= {
                each.event.seq: each.event.at for each in page.events if each.event.seq in wanted
            }
            read_to = page.events[-1].event.seq
        return times


def _headers(room: str, suffix: str) -> dict[str, str]:
    return {
        **HEADERS,
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="{room}.{suffix}"',
    }
