"""What perception sees becomes events: in order, once, whatever crashed in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import api
from tests.support.scripted_engine import ScriptedEngine


@pytest.fixture
def engine():
    return ScriptedEngine()


def lab(asset: str, number: int, value: float, **fields) -> api.LabRow:
    flag = "high" if value > 6.1 else "normal"
    return api.LabRow(
        media=asset,
        id=f"{asset}.lab.{number}",
        box=api.Box(x=0, y=number * 20, width=200, height=18),
        analyte="Glucose",
        value=str(value),
        unit="mmol/L",
        range="3.9-6.1",
        flag=flag,
        number=value,
        low=3.9,
        high=6.1,
        **fields,
    )


def script(engine: ScriptedEngine, asset: str, work: Path, *, until_end: bool = True) -> None:
    work.mkdir(parents=True, exist_ok=True)
    (work / "some-name.webp").write_bytes(b"a level")
    look = engine.look(asset)
    look.put_nowait(api.Detected(media=asset, media_type="image/png", width=200, height=100))
    look.put_nowait(
        api.LevelReady(
            media=asset,
            level=16,
            width=16,
            height=8,
            path=str(work / "some-name.webp"),
            media_type="image/webp",
        )
    )
    look.put_nowait(
        api.TextRow(media=asset, id=f"{asset}.1", box=api.Box(0, 0, 9, 9), text="Glucose", score=1)
    )
    look.put_nowait(lab(asset, 1, 11.2))
    look.put_nowait(lab(asset, 2, 5.0))
    look.put_nowait(lab(asset, 3, 13.0))
    if until_end:
        look.put_nowait(api.Completed(media=asset, timings={"total": 1.0}))


async def upload(server, client, engine, **options) -> str:
    asset = (await client.upload(b"picture", name="sheet.png"))["asset"]
    script(engine, asset, server.settings.folder / "derived" / asset / "work", **options)
    return asset


async def test_what_is_seen_is_numbered_and_values_out_of_range_are_marked(start, engine):
    server = await start(engine)
    mei = await server.join()
    asset = await upload(server, mei, engine)
    await mei.hear("asset.read")
    kinds = [event["type"] for event in mei.events()]
    assert kinds[:4] == ["asset.opened", "asset.committed", "asset.detected", "asset.level"]
    rows = [r for e in mei.events() if e["type"] == "asset.observed" for r in e["rows"]]
    assert [row["type"] for row in rows] == ["text", "lab", "lab", "lab"]
    marks = [e["annotation"] for e in mei.events() if e["type"] == "annotation.put"]
    assert [mark["label"] for mark in marks] == [
        "Glucose 11.2 mmol/L ↑ (3.9-6.1)",
        "Glucose 13.0 mmol/L ↑ (3.9-6.1)",
    ]
    assert [mark["severity"] for mark in marks] == ["warning", "critical"]
    assert {mark["target"]["asset"] for mark in marks} == {asset}


async def test_a_look_that_a_crash_cut_off_is_repeated_and_doubles_nothing(start, engine, tmp_path):
    first = await start(engine, folder=tmp_path / "house")
    mei = await first.join()
    asset = await upload(first, mei, engine, until_end=False)
    await mei.until(lambda: len([e for e in mei.events() if e["type"] == "annotation.put"]) == 2)
    await first.stop()

    again = ScriptedEngine()
    script(again, asset, tmp_path / "house" / "derived" / asset / "work")
    second = await start(again, folder=tmp_path / "house")
    wu = await second.join("Wu")
    await wu.hear("asset.read")
    late = await second.join("Late")
    state = late.welcome["snapshot"]
    assert [row["id"] for row in state["assets"][0]["rows"]] == [
        f"{asset}.1",
        *(f"{asset}.lab.{n}" for n in (1, 2, 3)),
    ]
    assert len(state["annotations"]) == 2 and len(state["assets"][0]["levels"]) == 1
    assert {e["type"] for e in wu.events()} == {"asset.read"}


async def test_a_picture_that_cannot_be_read_fails_alone(start, engine):
    server = await start(engine)
    mei = await server.join()
    asset = (await mei.upload(b"broken"))["asset"]
    failed = api.MediaFailed(media=asset, code=api.EngineCode.MEDIA_TRUNCATED, message="cut")
    engine.look(asset).put_nowait(failed)
    assert (await mei.hear("asset.failed"))["code"] == "media_truncated"
    await upload_again(server, mei, engine)


async def upload_again(server, mei, engine) -> None:
    closed = await mei.upload(b"whole", stream=2)
    script(engine, closed["asset"], server.settings.folder / "derived" / closed["asset"] / "work")
    await mei.hear("asset.read", asset=closed["asset"])


async def test_a_look_that_ends_without_an_end_fails_the_asset(start, engine):
    server = await start(engine)
    mei = await server.join()
    engine.look((await mei.upload(b"picture"))["asset"]).put_nowait(None)
    assert (await mei.hear("asset.failed"))["code"] == "engine_lost"


async def test_a_level_that_cannot_be_kept_fails_the_asset(start, engine):
    server = await start(engine)
    mei = await server.join()
    asset = (await mei.upload(b"picture"))["asset"]
    gone = api.LevelReady(
        media=asset, level=16, width=1, height=1, path="/nowhere/l.webp", media_type="image/webp"
    )
    engine.look(asset).put_nowait(gone)
    assert (await mei.hear("asset.failed"))["code"] == "internal"


async def test_progress_is_shown_and_has_no_number(start, engine):
    server = await start(engine)
    mei = await server.join()
    asset = (await mei.upload(b"picture"))["asset"]
    engine.look(asset).put_nowait(api.Progress(media=asset, stage="ocr", done=3, total=9))
    shown = await mei.hear("asset.progress")
    assert (shown["done"], shown["total"], "seq" in shown) == (3, 9, False)


async def test_an_engine_that_is_away_fails_the_asset_with_its_code(server):
    mei = await server.join()
    await mei.upload(b"picture")
    assert (await mei.hear("asset.failed"))["code"] == "engine_lost"
