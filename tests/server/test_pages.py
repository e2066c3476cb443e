"""Pictures over HTTP: tickets, ranges, caches, and nothing outside the store."""

from __future__ import annotations

import hashlib
import time

import httpx
import jwt
import pytest

from engine import api
from server.auth import Auth
from tests.support.scripted_engine import ScriptedEngine

PICTURE = bytes(range(256)) * 40


@pytest.fixture
async def shown(start):
    """A server with one picture that was looked at, and how to fetch from it."""
    engine = ScriptedEngine()
    server = await start(engine)
    mei = await server.join()
    asset = (await mei.upload(PICTURE, name="../x\u00e9.png"))["asset"]
    work = server.settings.folder / "derived" / asset / "work"
    work.mkdir(parents=True)
    (work / "l.webp").write_bytes(b"level bytes")
    look = engine.look(asset)
    look.put_nowait(api.Detected(media=asset, media_type="image/png", width=9, height=9))
    path = str(work / "l.webp")
    look.put_nowait(
        api.LevelReady(media=asset, level=16, width=9, height=9, path=path, media_type="image/webp")
    )
    look.put_nowait(api.Completed(media=asset))
    engine.says("t1", "answer")
    await mei.say(type="ask", turn="t1", text="?")
    await mei.hear("turn.done")
    async with httpx.AsyncClient(base_url=server.base) as http:
        yield Shown(server, mei, asset, http)


@pytest.fixture
async def series(start):
    """A server with a series of two frames, of which the second is decoded."""
    engine = ScriptedEngine()
    server = await start(engine)
    mei = await server.join()
    asset = (await mei.upload(PICTURE, name="series.dcm"))["asset"]
    frames = server.settings.folder / "derived" / asset / "work" / "frames"
    frames.mkdir(parents=True)
    (frames / "1").write_bytes(b"frame bytes")
    detected = api.Detected(
        media=asset,
        media_type="application/dicom",
        width=9,
        height=9,
        frames=2,
        imaging=api.Imaging(modality="CT"),
    )
    look = engine.look(asset)
    look.put_nowait(detected)
    look.put_nowait(api.Completed(media=asset))
    await mei.hear("asset.read")
    async with httpx.AsyncClient(base_url=server.base) as http:
        yield Shown(server, mei, asset, http)


def ticket_of(shown, role):
    key = (shown.server.settings.folder / "ticket.key").read_text()
    return Auth(None, key, 60).ticket("p", "ward-7", role, time.time())[0]


class Shown:
    def __init__(self, server, client, asset, http) -> None:
        self.server, self.client, self.asset, self.http = server, client, asset, http
        self.base = client.welcome["media"]["base"]
        self.ticket = client.welcome["media"]["ticket"]

    async def get(self, path: str, *, ticket: str | None = None, **headers: str):
        params = {"ticket": self.ticket if ticket is None else ticket}
        return await self.http.get(path, params=params, headers=headers)


async def test_a_level_is_served_with_its_type_and_may_be_kept(shown):
    answer = await shown.get(f"{shown.base}/{shown.asset}/levels/16")
    assert (answer.status_code, answer.content) == (200, b"level bytes")
    assert answer.headers["content-type"] == "image/webp"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "immutable" in answer.headers["cache-control"]
    etag = answer.headers["etag"]
    assert not etag.startswith("W/")
    again = await shown.get(f"{shown.base}/{shown.asset}/levels/16", **{"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")


async def test_the_original_is_served_whole_and_in_ranges(shown):
    path = f"{shown.base}/{shown.asset}/original"
    answer = await shown.get(path)
    assert hashlib.sha256(answer.content).digest() == hashlib.sha256(PICTURE).digest()
    assert answer.headers["content-disposition"].startswith("inline; filename*=utf-8''.._x")
    part = await shown.get(path, range="bytes=256-511")
    assert (part.status_code, part.content) == (206, bytes(range(256)))
    assert part.headers["content-range"] == f"bytes 256-511/{len(PICTURE)}"
    beyond = await shown.get(path, range=f"bytes={len(PICTURE)}-")
    assert beyond.status_code == 416


async def test_without_a_good_ticket_nothing_is_served(shown):
    path = f"{shown.base}/{shown.asset}/original"
    bare = await shown.http.get(path)
    assert (bare.status_code, bare.json()["code"]) == (401, "unauthenticated")
    forged = jwt.encode(
        {"sub": "p", "room": "ward-7", "exp": time.time() + 60, "aud": "consilium-media"},
        "k" * 32,
        algorithm="HS256",
    )
    assert (await shown.get(path, ticket=forged)).status_code == 401
    other = await shown.server.join("Wu", room="elsewhere")
    foreign = await shown.get(path, ticket=other.welcome["media"]["ticket"])
    assert (foreign.status_code, foreign.json()["code"]) == (403, "forbidden")


async def test_an_old_ticket_says_that_it_is_old(shown, start):
    key = (shown.server.settings.folder / "ticket.key").read_text()
    claims = {"sub": "p", "room": "ward-7", "exp": int(time.time()) - 5, "aud": "consilium-media"}
    old = jwt.encode(claims, key, algorithm="HS256")
    answer = await shown.get(f"{shown.base}/{shown.asset}/original", ticket=old)
    assert (answer.status_code, answer.json()["code"]) == (401, "token_expired")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/rooms/ward-7/assets/..%2F..%2Fticket.key/original",
        "/v1/rooms/ward-7/assets/nothing/original",
        "/v1/rooms/ward-7/assets/nothing/levels/16",
        "/v1/rooms/ward-7/turns/nothing",
        "/v1/rooms/..%2Fward-7/assets/x/original",
    ],
)
async def test_what_is_not_in_the_room_is_not_found(shown, path):
    answer = await shown.get(path)
    assert answer.status_code in (404, 403)


async def test_a_level_that_is_not_ready_is_not_found(shown):
    answer = await shown.get(f"{shown.base}/{shown.asset}/levels/64")
    assert (answer.status_code, answer.json()["code"]) == (404, "asset_unknown")


async def test_a_turns_record_holds_the_prompt_and_the_tokens(shown):
    answer = await shown.get("/v1/rooms/ward-7/turns/t1")
    record = answer.json()
    assert (record["prompt"], record["text"], record["token_ids"]) == ("p", "answer", [0])
    assert record["prompt_sha256"] == hashlib.sha256(b"p").hexdigest()
    assert answer.headers["cache-control"] == "no-store"


async def test_unknown_content_is_a_download(shown, start):
    closed = await shown.client.upload(b"<script>alert(1)</script>", stream=2, name="a.html")
    path = f"{shown.base}/{closed['asset']}/original"
    answer = await shown.get(path, ticket=ticket_of(shown, "chair"))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]


async def test_the_original_of_a_dicom_file_is_for_the_chair_alone(series):
    path = f"{series.base}/{series.asset}/original"
    refused = await series.get(path)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert PICTURE[:16] not in refused.content
    chair = await series.get(path, ticket=ticket_of(series, "chair"))
    assert (chair.status_code, chair.content) == (200, PICTURE)
    assert chair.headers["content-disposition"].startswith("attachment")


async def test_until_somebody_looked_a_file_may_be_one_and_is_not_given_out(shown):
    closed = await shown.client.upload(PICTURE, stream=2, name="x.dcm")
    answer = await shown.get(f"{shown.base}/{closed['asset']}/original")
    assert (answer.status_code, answer.json()["code"]) == (404, "asset_not_ready")


async def test_a_frame_is_served_as_soon_as_it_is_decoded(series):
    path = f"{series.base}/{series.asset}/frames"
    answer = await series.get(f"{path}/1")
    assert (answer.status_code, answer.content) == (200, b"frame bytes")
    assert answer.headers["content-type"] == "application/vnd.consilium.frame"
    assert "immutable" in answer.headers["cache-control"]
    later = await series.get(f"{path}/0")
    assert (later.status_code, later.json()["code"]) == (404, "asset_not_ready")
    beyond = await series.get(f"{path}/2")
    assert (beyond.status_code, beyond.json()["code"]) == (404, "asset_unknown")
    assert (await series.http.get(f"{path}/1")).status_code == 401


async def test_a_picture_that_is_no_series_has_no_frames(shown):
    answer = await shown.get(f"{shown.base}/{shown.asset}/frames/0")
    assert (answer.status_code, answer.json()["code"]) == (404, "asset_unknown")


async def test_tickets_are_renewed_before_they_end(start):
    server = await start(ticket_s=2.0)
    mei = await server.join()
    access = await mei.hear("access")
    assert access["media"]["expires_at"] > mei.welcome["media"]["expires_at"]
