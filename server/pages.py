"""Pictures and turn records over HTTP, for whoever holds a ticket of their room."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from protocol.errors import ErrorCode, Forbidden, OpRefused, ProtocolError, Unauthenticated
from protocol.state import AssetState
from server.assets import Assets
from server.auth import Auth, Holder, is_name
from server.hub import Hub
from server.log import LogUnavailable
from server.turn_records import TurnRecords

_SHOWN_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp", "image/tiff"}
    | {"image/avif", "image/heic"}
    | {"audio/wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/flac", "audio/ogg", "audio/webm"}
    | {"video/mp4", "video/webm", "video/quicktime"}
)
_DICOM = "application/dicom"
_KEYFRAME = "image/jpeg"
_GRAY_FRAME = "application/vnd.consilium.frame"
_CACHE = "private, max-age=31536000, immutable"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Referrer-Policy": "no-referrer",
}
_STATUS = {
    ErrorCode.ASSET_UNKNOWN: 404,
    ErrorCode.ASSET_NOT_READY: 404,
    ErrorCode.TURN_UNKNOWN: 404,
    ErrorCode.EXPORT_IMPOSSIBLE: 422,
}


class Unknown(ProtocolError):
    """There is no such thing in this room."""


class Pages:
    """Serves what a room's people may fetch; every answer that is no file is JSON."""

    def __init__(self, auth: Auth, hub: Hub, assets: Assets, records: TurnRecords) -> None:
        self._auth = auth
        self._hub = hub
        self._assets = assets
        self._records = records

    def routes(self) -> list[Route]:
        """The routes under `/v1/rooms/{room}`."""
        base = "/v1/rooms/{room}"
        return [
            Route(base + "/assets/{asset}/levels/{level:int}", self.level, methods=["GET"]),
            Route(base + "/assets/{asset}/frames/{frame:int}", self.frame, methods=["GET"]),
            Route(base + "/assets/{asset}/original", self.original, methods=["GET"]),
            Route(base + "/turns/{turn}", self.turn, methods=["GET"]),
        ]

    async def level(self, request: Request) -> Response:
        """One resolution of a picture."""
        try:
            asset = await self._asset(request)
            number = request.path_params["level"]
            level = next((each for each in asset.levels if each.level == number), None)
            if level is None:
                raise Unknown("no such level (yet)", code=ErrorCode.ASSET_UNKNOWN)
        except ProtocolError as error:
            return refusal(error)
        etag = f'"{asset.sha256}-{number}"'
        place = self._assets.level(asset.asset, number)
        return _file(request, str(place), level.media_type, etag)

    async def frame(self, request: Request) -> Response:
        """One frame of a medical image with all its depth, or a keyframe of a video or camera."""
        number = request.path_params["frame"]
        try:
            asset = await self._asset(request)
            if not _has_frame(asset, number):
                raise Unknown("no such frame", code=ErrorCode.ASSET_UNKNOWN)
            place = self._assets.frame(asset.asset, number)
            if not await self._assets.is_there(place):
                raise Unknown("the frame is not decoded yet", code=ErrorCode.ASSET_NOT_READY)
        except ProtocolError as error:
            return refusal(error)
        media_type = _KEYFRAME
        if asset.imaging is not None:
            media_type = "image/png" if asset.imaging.color else _GRAY_FRAME
        return _file(request, str(place), media_type, f'"{asset.asset}-frame-{number}"')

    async def original(self, request: Request) -> Response:
        """The bytes as they were uploaded; of a medical image, which names people, to the chair."""
        try:
            asset = await self._asset(request)
            if asset.sha256 is None or asset.status == "failed":
                raise Unknown("the asset is not committed", code=ErrorCode.ASSET_UNKNOWN)
            self._check_original(request, asset)
        except ProtocolError as error:
            return refusal(error)
        is_shown = asset.media_type in _SHOWN_TYPES
        media_type = asset.media_type if is_shown else "application/octet-stream"
        response = _file(
            request, str(self._assets.original(asset.sha256)), media_type, f'"{asset.sha256}"'
        )
        disposition = "inline" if is_shown else "attachment"
        name = re.sub(r"[\x00-\x1f/\\]", "_", asset.name) or asset.asset
        response.headers["Content-Disposition"] = f"{disposition}; filename*=utf-8''{quote(name)}"
        return response

    async def turn(self, request: Request) -> Response:
        """What the model read and made for one turn."""
        room = request.path_params["room"]
        try:
            self._check(request, room)
            record = await self._records.find(room, request.path_params["turn"])
            if record is None:
                raise Unknown("no record of this turn", code=ErrorCode.TURN_UNKNOWN)
        except LogUnavailable:
            unavailable = OpRefused("not readable now", code=ErrorCode.UNAVAILABLE)
            return refusal(unavailable)
        except ProtocolError as error:
            return refusal(error)
        headers = {**HEADERS, "Cache-Control": "no-store"}
        return Response(msgspec.json.encode(record), media_type="application/json", headers=headers)

    async def _asset(self, request: Request) -> AssetState:
        room, name = request.path_params["room"], request.path_params["asset"]
        self._check(request, room)
        hosted = await self._hub.enter(room)
        try:
            # Fresh, because another process may have told the client of it.
            asset = await hosted.room.between(lambda state: state.assets.get(name), fresh=True)
        finally:
            self._hub.leave(hosted)
        if asset is None:
            raise Unknown("no such asset in this room", code=ErrorCode.ASSET_UNKNOWN)
        return asset

    def _check_original(self, request: Request, asset: AssetState) -> None:
        if self._check(request, request.path_params["room"]).role == "chair":
            return
        if asset.media_type == _DICOM:
            raise Forbidden("the file says whom it shows; only the chair may have it")
        if not asset.media_type:
            # Until somebody has looked it may be such a file.
            raise Unknown("the asset was not looked at yet", code=ErrorCode.ASSET_NOT_READY)

    def _check(self, request: Request, room: str) -> Holder:
        if not is_name(room):
            raise Unknown("no such room", code=ErrorCode.ASSET_UNKNOWN)
        return self._auth.check_ticket(request.query_params.get("ticket"), room)


def _has_frame(asset: AssetState, number: int) -> bool:
    if asset.status == "failed":
        return False
    if asset.imaging is not None:
        return number < asset.frames
    return any(keyframe.frame == number for keyframe in asset.keyframes)


def _file(request: Request, path: str, media_type: str, etag: str) -> Response:
    headers = {**HEADERS, "ETag": etag, "Cache-Control": _CACHE}
    known = request.headers.get("if-none-match", "")
    if etag in (each.strip() for each in known.split(",")):
        return Response(status_code=304, headers=headers)
    return FileResponse(path, media_type=media_type, headers=headers)


def refusal(error: ProtocolError) -> JSONResponse:
    """Answer with the code and the sentence, never with details."""
    match error:
        case Unauthenticated():
            status = 401
        case Forbidden():
            status = 403
        case OpRefused():
            status = 503
        case _:
            status = _STATUS.get(error.code, 400)
    body = {"code": error.code.value, "message": error.message}
    return JSONResponse(body, status, headers={**HEADERS, "Cache-Control": "no-store"})
