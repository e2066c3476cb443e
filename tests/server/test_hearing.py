"""Microphones: written down while they are open, stored whole, and asked once."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from engine import api
from protocol.media import MediaFrame, MediaKind
from tests.support.scripted_engine import ScriptedEngine

PCM = "audio/pcm;rate=48000;channels=1"
CHUNK = b"\1\2" * 960


class Listener(ScriptedEngine):
    """Keeps what it is fed; its observations are the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.fed: dict[str, bytes] = {}
        self.ended: set[str] = set()

    async def feed(self, media: str, chunk: bytes, pts_us: int) -> None:
        self.fed[media] = self.fed.get(media, b"") + chunk

    async def close(self, media: str) -> None:
        self.ended.add(media)

    def hears(self, asset: str, number: int, text: str, start: float = 0.0) -> None:
        self.look(asset).put_nowait(
            api.Speech(
                media=asset,
                id=f"{asset}.speech.{number}",
                start_s=start,
                end_s=start + 1.5,
                text=text,
            )
        )

    def completes(self, asset: str) -> None:
        self.look(asset).put_nowait(
            api.Detected(media=asset, media_type=PCM, width=0, height=0, duration_s=2.5)
        )
        self.look(asset).put_nowait(api.Completed(media=asset, timings={"total": 2.5}))


@pytest.fixture
def engine():
    return Listener()


async def open_microphone(client, **more) -> str:
    await client.say(
        type="stream.open", stream=1, kind="microphone", name="Mei", media_type=PCM, **more
    )
    asset = (await client.hear("stream.opened"))["asset"]
    await client.hear("asset.opened", asset=asset)
    return asset


async def send(client, *numbers: int) -> None:
    for number in numbers:
        frame = MediaFrame(1, number, CHUNK, MediaKind.MICROPHONE, pts_us=number * 20_000)
        await client.socket.send(frame.serialize())


async def test_words_are_events_while_the_microphone_is_open(start, engine):
    server = await start(engine)
    mei, wu = await server.join(), await server.join("Wu")
    asset = await open_microphone(mei)
    await send(mei, 0, 1, 2)
    engine.hears(asset, 1, "The potassium is low.")
    row = (await wu.hear("asset.observed"))["rows"][0]
    assert (row["type"], row["text"], row["end"]) == ("speech", "The potassium is low.", 1.5)
    engine.completes(asset)
    await mei.say(type="stream.close", stream=1)
    closed = await mei.hear("stream.closed")
    assert closed["sha256"] == hashlib.sha256(CHUNK * 3).hexdigest()
    await wu.hear("asset.read")
    assert engine.fed[asset] == CHUNK * 3
    kinds = [event["type"].removeprefix("asset.") for event in wu.events()]
    assert kinds == ["opened", "observed", "detected", "committed", "read"]
    late = (await server.join("Late")).welcome["snapshot"]["assets"][0]
    assert (late["kind"], late["duration_s"], late["media_type"]) == ("microphone", 2.5, PCM)


async def test_M4_a_slice_that_comes_twice_counts_once_and_a_gap_is_told(start, engine):
    server = await start(engine)
    mei = await server.join()
    asset = await open_microphone(mei)
    await send(mei, 0, 1, 1, 0, 5)
    gap = await mei.hear("error")
    assert (gap["code"], gap["ref"]) == ("stream_gap", "1") and "0.10 s" in gap["message"]
    await send(mei, 6)
    engine.completes(asset)
    await mei.say(type="stream.close", stream=1)
    assert (await mei.hear("stream.closed"))["sha256"] == hashlib.sha256(CHUNK * 4).hexdigest()


async def test_M3_L39_silence_of_a_microphone_is_not_its_end(start, engine):
    """A phone in the background sends nothing; one that never comes back ends its recording."""
    server = await start(engine, upload_resume_s=0.2)
    mei, wu = await server.join(), await server.join("Wu")
    asset = await open_microphone(mei)
    await send(mei, 0)
    await wu.hear("asset.opened", asset=asset)
    await asyncio.sleep(0.5)
    await send(mei, 1)
    engine.completes(asset)
    await mei.hear("stream.credit", received=2 * len(CHUNK))
    mei.cut()
    committed = await wu.hear("asset.committed")
    assert committed["size"] == 2 * len(CHUNK)
    await wu.hear("asset.read")


async def test_an_engine_lost_meanwhile_hears_the_stored_recording(start, engine):
    server = await start(engine)
    mei = await server.join()
    asset = await open_microphone(mei)
    engine.hears(asset, 1, "Before.")
    await mei.hear("asset.observed")
    lost = api.MediaFailed(media=asset, code=api.EngineCode.ENGINE_LOST, message="gone")
    engine.look(asset).put_nowait(lost)
    await send(mei, 0)
    await mei.say(type="stream.close", stream=1)
    await mei.hear("asset.committed")
    engine.hears(asset, 1, "Before.")
    engine.hears(asset, 2, "After.")
    engine.completes(asset)
    await mei.hear("asset.read")
    again = engine.opened[-1]
    assert again.path is not None and again.declared_type == PCM
    rows = [r["text"] for e in mei.events() if e["type"] == "asset.observed" for r in e["rows"]]
    assert rows == ["Before.", "After."]


async def test_what_a_microphone_sent_before_a_crash_is_kept_and_heard(start, engine, tmp_path):
    first = await start(engine, folder=tmp_path / "house")
    mei = await first.join()
    asset = await open_microphone(mei)
    await send(mei, 0, 1)
    await mei.hear("stream.credit", received=2 * len(CHUNK))
    await first.stop()
    again = Listener()
    again.hears(asset, 1, "All of it.")
    again.completes(asset)
    second = await start(again, folder=tmp_path / "house", upload_resume_s=0.2)
    wu = await second.join("Wu")
    await wu.hear("asset.read")
    assert again.opened[-1].declared_type == PCM
    assert [e["type"] for e in wu.events()][0] == "asset.committed"


async def test_a_microphone_that_is_given_up_withdraws_its_words(start, engine):
    server = await start(engine)
    mei = await server.join()
    asset = await open_microphone(mei)
    engine.hears(asset, 1, "Never mind.")
    await mei.hear("asset.observed")
    await mei.say(type="stream.abort", stream=1)
    assert (await mei.hear("asset.failed"))["asset"] == asset
    state = (await server.join("Late")).welcome["snapshot"]["assets"][0]
    assert state.get("rows", []) == []


async def test_voice_mode_asks_each_utterance_once_and_goes_on_with_a_pending_one(start, engine):
    """M8: who goes on speaking before the answer began has asked one question, not two."""
    server = await start(engine)
    mei = await server.join()
    asset = await open_microphone(mei, asks=True)
    first, second, third = (f"voice.{asset}.speech.{number}" for number in (1, 2, 3))
    engine.script(first)
    engine.says(second, "Yes.")
    engine.says(third, "It is.")
    engine.hears(asset, 1, "Is the potassium")
    started = await mei.hear("turn.started", turn=first)
    assert (started["question"], started["actor"]["name"]) == ("Is the potassium", "Mei")
    assert asset not in started.get("assets", [])
    engine.hears(asset, 2, "out of range?", 3.0)
    assert (await mei.hear("turn.started", turn=second))["question"] == (
        "Is the potassium out of range?"
    )
    assert (await mei.hear("turn.cancelled", turn=first))["reason"] == "barge_in"
    await mei.hear("turn.done", turn=second)
    engine.hears(asset, 2, "out of range?", 3.0)
    engine.hears(asset, 3, "And the sodium?", 6.0)
    assert (await mei.hear("turn.started", turn=third))["question"] == "And the sodium?"
    await mei.hear("turn.done", turn=third)
    assert len([e for e in mei.events() if e["type"] == "turn.started"]) == 3


async def test_a_microphone_that_does_not_ask_and_a_cough_that_does_ask_nothing(start, engine):
    server = await start(engine)
    mei = await server.join()
    asset = await open_microphone(mei, asks=True)
    cough = api.Speech(media=asset, id=f"{asset}.speech.1", start_s=0, end_s=0.7, text="Hm.")
    engine.look(asset).put_nowait(cough)
    engine.completes(asset)
    await mei.say(type="stream.close", stream=1)
    await mei.hear("asset.read")
    assert not [e for e in mei.events() if e["type"] == "turn.started"]


async def test_a_room_that_is_mended_leaves_a_recording_to_who_still_listens_to_it(start, engine):
    """With several processes a room is mended again and again: two looks at once failed it."""
    server = await start(engine)
    mei = await server.join("Mei")
    asset = await open_microphone(mei)
    await mei.socket.send(MediaFrame(1, 0, CHUNK, MediaKind.MICROPHONE).serialize())
    await mei.say(type="stream.close", stream=1)
    await mei.hear("asset.committed", asset=asset)
    hub = server.server.hub
    hosted = await hub.enter("ward-7")
    await hosted.room.between(lambda state: hub.on_load(hosted.room, state))
    await mei.comment("c1")
    assert len(engine.opened) == 1
    engine.completes(asset)
    await mei.hear("asset.read", asset=asset)
    assert len(engine.opened) == 1
    hub.leave(hosted)
