"""The export route: who may, what is refused and how, and that nobody else waits."""

from __future__ import annotations

import asyncio
import json
import time

import httpx
import numpy as np
import pytest

from engine import api
from server import exporting
from server.auth import Auth, make_token
from tests.support import dicoms
from tests.support.dicom_checks import unpacked
from tests.support.scripted_engine import ScriptedEngine

SECRET = "s" * 32


@pytest.fixture
async def shown(start):
    """A server with one marked picture."""
    engine = ScriptedEngine()
    server = await start(engine)
    mei = await server.join()
    asset = (await mei.upload(bytes(999), name="a.png"))["asset"]
    look = engine.look(asset)
    look.put_nowait(api.Detected(media=asset, media_type="image/png", width=90, height=60))
    look.put_nowait(api.Completed(media=asset))
    await mei.hear("asset.read")
    shape = {"type": "rectangle", "x": 1.5, "y": 2.25, "width": 30, "height": 4}
    mark = {"id": "m1", "target": {"asset": asset}, "shape": shape, "label": "here"}
    await mei.op("o1", type="annotation.put", annotation=mark)
    async with httpx.AsyncClient(base_url=server.base, timeout=60) as http:
        yield Shown(server, mei, asset, http)


class Shown:
    def __init__(self, server, client, asset, http) -> None:
        self.server, self.client, self.asset, self.http = server, client, asset, http
        self.ticket = client.welcome["media"]["ticket"]

    async def get(self, form, **params):
        params = {"format": form, "ticket": self.ticket, **params}
        return await self.http.get("/v1/rooms/ward-7/export", params=params)


def ticket_of(shown, role):
    key = (shown.server.settings.folder / "ticket.key").read_text()
    return Auth(None, key, 60).ticket("p", "ward-7", role, time.time())[0]


async def test_a_room_is_exported_with_the_time_of_each_mark(shown):
    answer = await shown.get("w3c")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/ld+json")
    assert answer.headers["content-disposition"] == 'attachment; filename="ward-7.jsonld"'
    assert answer.headers["cache-control"] == "no-store"
    (item,) = answer.json()["first"]["items"]
    put = await shown.client.hear("annotation.put")
    assert item["created"].startswith(time.strftime("%Y-%m-%dT", time.gmtime(put["at"] / 1000)))
    assert item["target"]["source"]["id"].startswith(shown.server.base)


async def test_the_raw_log_is_every_event(shown):
    lines = [json.loads(line) for line in (await shown.get("ndjson")).text.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["type"] == "annotation.put"


async def test_an_observer_may_export_and_nobody_without_a_ticket(shown):
    observer = ticket_of(shown, "observer")
    assert (await shown.get("coco", ticket=observer)).status_code == 200
    bare = await shown.http.get("/v1/rooms/ward-7/export", params={"format": "coco"})
    assert (bare.status_code, bare.json()["code"]) == (401, "unauthenticated")
    other = await shown.server.join("Wu", room="elsewhere")
    foreign = await shown.get("coco", ticket=other.welcome["media"]["ticket"])
    assert (foreign.status_code, foreign.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("form", ["", "pdf", "../w3c", "w3c\x00"])
async def test_an_unknown_format_is_refused_with_those_there_are(shown, form):
    answer = await shown.get(form)
    assert (answer.status_code, answer.json()["code"]) == (400, "export_format")
    assert "w3c, coco" in answer.json()["message"]


async def test_a_room_name_that_is_none_is_refused(shown):
    answer = await shown.http.get("/v1/rooms/..%20x/export", params={"format": "w3c"})
    assert (answer.status_code, answer.json()["code"]) == (404, "asset_unknown")


async def test_a_program_comes_with_a_room_token(start):
    server = await start(secret=SECRET)

    def token(room="ward-7", ends=60.0):
        return make_token(
            SECRET, room=room, participant="p", name="P", expires_at=time.time() + ends
        )

    async with httpx.AsyncClient(base_url=server.base, timeout=60) as http:

        async def get(bearer):
            headers = {"Authorization": f"Bearer {bearer}"}
            return await http.get("/v1/rooms/ward-7/export?format=w3c", headers=headers)

        assert (await get(token())).json()["total"] == 0
        assert (await get(token(room="other"))).status_code == 403
        expired = await get(token(ends=-60))
        assert (expired.status_code, expired.json()["code"]) == (401, "token_expired")
        assert (await get("nonsense")).status_code == 401


async def test_only_some_are_written_at_once_and_the_room_goes_on(shown):
    many = exporting.MAX_AT_ONCE + 1
    writing = [asyncio.create_task(shown.get("w3c")) for _ in range(many)]
    answer = await shown.client.comment("during")
    assert answer["type"] == "ack"
    answers = await asyncio.gather(*writing)
    assert sorted(each.status_code for each in answers) == [200] * (many - 1) + [503]
    (refused,) = (each for each in answers if each.status_code == 503)
    assert refused.json()["code"] == "overloaded"
    assert (await shown.get("w3c")).status_code == 200, "the place is free again"


async def test_nothing_stays_behind_in_the_folder(shown):
    before = sorted(path for path in shown.server.settings.folder.iterdir())
    await shown.get("coco")
    assert sorted(path for path in shown.server.settings.folder.iterdir()) == before


async def test_one_that_takes_too_long_is_ended_and_said_so(shown):
    shown.server.server.exporting.timeout_s = 0.01
    answer = await shown.get("coco")
    assert (answer.status_code, answer.json()["code"]) == (422, "export_impossible")


@pytest.fixture
async def medical(start):
    """A server with one marked DICOM file that says whom it shows."""
    engine = ScriptedEngine()
    server = await start(engine)
    mei = await server.join()
    content = dicoms.content(dicoms.gray(np.zeros((60, 90), np.uint16)))
    asset = (await mei.upload(content, name="scan.dcm"))["asset"]
    look = engine.look(asset)
    look.put_nowait(
        api.Detected(
            media=asset,
            media_type="application/dicom",
            width=90,
            height=60,
            imaging=api.Imaging(modality="CT"),
        )
    )
    look.put_nowait(api.Completed(media=asset))
    await mei.hear("asset.read")
    shape = {"type": "rectangle", "x": 1.5, "y": 2.25, "width": 30, "height": 4}
    mark = {"id": "m1", "target": {"asset": asset}, "shape": shape, "label": "here"}
    await mei.op("o1", type="annotation.put", annotation=mark)
    async with httpx.AsyncClient(base_url=server.base, timeout=60) as http:
        yield Shown(server, mei, asset, http)


@pytest.mark.parametrize("role", ["member", "observer", "auditor", "camera", "chair"])
async def test_identities_in_dicom_go_to_the_chair_alone(medical, role):
    answer = await medical.get("dicom-sr", ticket=ticket_of(medical, role))
    assert answer.headers["content-type"] == "application/zip", answer.text
    objects = unpacked(answer.content)
    told = "".join(repr(each) for each in objects.values())
    for value in ("Zweistein", "MRN-77120934", dicoms.IDENTITIES["StudyInstanceUID"]):
        assert (value in told) is (role == "chair"), value


@pytest.mark.parametrize("form", ["w3c", "coco", "fhir", "html", "ndjson"])
async def test_no_other_format_has_identities_even_for_the_chair(medical, form):
    answer = await medical.get(form, ticket=ticket_of(medical, "chair"))
    assert answer.status_code == 200
    for value in ("Zweistein", "MRN-77120934", dicoms.IDENTITIES["StudyInstanceUID"]):
        assert value not in answer.text


async def test_a_room_that_a_format_cannot_hold_is_told_why(shown):
    """The mark is there, but nobody has made a picture of the asset."""
    answer = await shown.get("dicom-sr")
    assert (answer.status_code, answer.json()["code"]) == (422, "export_impossible")
    assert "no standing mark" in answer.json()["message"]


async def test_a_fault_of_the_writer_is_a_refusal_without_details(medical):
    (original,) = (medical.server.settings.folder / "assets").glob("*/*")
    original.write_bytes(b"no DICOM file any more")
    answer = await medical.get("dicom-sr")
    assert (answer.status_code, answer.json()["code"]) == (422, "export_impossible")
    assert answer.json()["message"] == "the room could not be written in this format"
    assert (await medical.get("w3c")).status_code == 200
