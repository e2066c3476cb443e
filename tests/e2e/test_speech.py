"""People who speak: recordings and a microphone, through real processes and a real browser."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from playwright.async_api import async_playwright, expect

import consilium
from protocol.shapes import SpeechRow
from tests.e2e.conftest import CHROME_OPTIONS, chrome_path
from tests.support.page import Visitor
from tests.support.spoken import TEXTS, encoded, recording, samples, word_error_rate

pytestmark = [pytest.mark.browser, pytest.mark.model]

HEARD_LIMIT_MS = 60_000


def new_room() -> str:
    return f"speech-{uuid.uuid4().hex[:8]}"


async def heard(room, asset: str) -> str:
    """Wait until the asset is read, and return what was said in it."""
    async with asyncio.timeout(120):
        await room.until(lambda: room.state.assets[asset].status in ("read", "failed"))
    state = room.state.assets[asset]
    assert state.status == "read", state.message
    return " ".join(row.text for row in state.rows if isinstance(row, SpeechRow))


async def test_a_dictated_recording_is_read_and_the_model_is_told_what_was_said(product):
    async with consilium.connect(product.base, room=new_room(), name="Dr Wu") as room:
        assert any("English" in notice for notice in room.welcome.notices)
        asset = await room.upload(recording("beckett"), name="dictation.wav")
        assert word_error_rate(TEXTS["beckett"], await heard(room, asset)) <= 0.15
        state = room.state.assets[asset]
        assert (state.media_type, round(state.duration_s, 2)) == ("audio/wav", 9.96)
        assert await room.fetch_original(asset) == recording("beckett").read_bytes()
        handle = await room.ask("What was tried?", max_tokens=8)
        await handle.done()
        prompt = (await room.fetch_turn_record(handle.turn))["prompt"]
        assert "Transcript of dictation.wav:\nEver tried." in prompt


@pytest.mark.parametrize("form", ["20 ms chunks", "recorder slices"])
async def test_a_microphone_of_the_asyncio_client_is_written_down(product, tmp_path, form):
    pcm, rate = samples("two_cities")
    if form == "20 ms chunks":
        media_type, content, size = f"audio/pcm;rate={rate};channels=1", pcm.tobytes(), rate // 25
    else:
        media_type, size = "audio/webm;codecs=opus", 3_000
        content = encoded(pcm, rate, tmp_path / "made", "webm", "libopus")
    async with consilium.connect(product.base, room=new_room(), name="Dr Wu") as room:
        async with room.microphone(media_type, name="Dr Wu") as microphone:
            for start in range(0, len(content), size):
                await microphone.send(content[start : start + size])
        assert microphone.asset is not None
        said = await heard(room, microphone.asset)
        assert word_error_rate(TEXTS["two_cities"], said) <= 0.15
        assert await room.fetch_original(microphone.asset) == content


@pytest.fixture
async def speaking_browser():
    """A Chromium whose microphone hears a recording, once."""
    options = [
        *CHROME_OPTIONS,
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={recording('beckett')}%noloop",
    ]
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=chrome_path(), args=options)
        yield chromium
        await chromium.close()


async def test_what_one_person_says_is_read_by_the_other_and_asked_in_voice_mode(
    speaking_browser, product
):
    room = new_room()
    wu = await Visitor.arrive(speaking_browser, product.base, room, "Dr Wu", "Radiology")
    ada = await Visitor.arrive(speaking_browser, product.base, room, "Dr Ada", "Cardiology")
    await wu.at("voice-mode").click()
    await wu.at("microphone").click()
    await expect(wu.at("microphone")).to_have_attribute("aria-pressed", "true")
    lines = ada.at("transcript-line")
    await expect(lines.last).to_contain_text("better", ignore_case=True, timeout=HEARD_LIMIT_MS)
    await wu.at("microphone").click()
    await expect(ada.at("speech")).to_have_attribute("data-status", "read", timeout=HEARD_LIMIT_MS)
    said = " ".join(await lines.all_inner_texts())
    assert word_error_rate(TEXTS["beckett"], said) <= 0.15
    await expect(ada.at("speech")).to_contain_text("Dr Wu")
    assert await ada.at("turn").count() >= 1
    await expect(ada.at("turn").first).to_contain_text("Dr Wu")
    assert wu.complaints == ada.complaints == []


async def test_a_recording_is_listed_with_its_length_and_can_be_played(speaking_browser, product):
    room = new_room()
    wu = await Visitor.arrive(speaking_browser, product.base, room, "Dr Wu", "Radiology")
    await wu.at("file-input").set_input_files(str(recording("beckett")))
    card = wu.at("asset").first
    await expect(card).to_contain_text("0:09 · 6 utterances", timeout=HEARD_LIMIT_MS)
    await expect(wu.at("player")).to_be_visible()
    played_s = await wu.page.evaluate(
        """async () => {
            const player = document.getElementById('player');
            player.muted = true;
            await player.play();
            return player.duration;
        }"""
    )
    assert round(played_s, 1) == 10.0
    assert wu.complaints == []
