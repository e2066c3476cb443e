"""Videos and this device's own camera in a real browser."""

from __future__ import annotations

import io
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.async_api import Browser, async_playwright, expect

import consilium
from tests.e2e.conftest import CHROME_OPTIONS, chrome_path
from tests.support.filming import encoded, jpeg
from tests.support.labsheet_render import RenderedSheet, render_sheet
from tests.support.page import Visitor
from tests.support.spoken import TEXTS, recording, word_error_rate

pytestmark = [pytest.mark.browser, pytest.mark.model]

SEEN_LIMIT_MS = 60_000
SHEET = render_sheet(21, "en")


def page_of(sheet: RenderedSheet) -> Image.Image:
    page = Image.open(io.BytesIO(sheet.png)).convert("RGB")
    even = Image.new("RGB", (page.width // 2 * 2, page.height // 2 * 2), "white")
    even.paste(page)
    return even


@pytest.fixture
async def filming_browser(tmp_path: Path) -> AsyncIterator[Browser]:
    """A Chromium whose camera sees a lab sheet and whose microphone hears a recording, once."""
    film = tmp_path / "camera.mjpeg"
    film.write_bytes(jpeg(page_of(SHEET), 95) * 4)
    options = [
        *CHROME_OPTIONS,
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-video-capture={film}",
        f"--use-file-for-fake-audio-capture={recording('beckett')}%noloop",
    ]
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=chrome_path(), args=options)
        yield chromium
        await chromium.close()


def new_room() -> str:
    return f"camera-{uuid.uuid4().hex[:8]}"


async def test_the_pages_own_camera_and_microphone_are_read_by_everybody(filming_browser, product):
    room = new_room()
    wu = await Visitor.arrive(filming_browser, product.base, room, "Dr Wu", "Radiology")
    ada = await Visitor.arrive(filming_browser, product.base, room, "Dr Ada", "Cardiology")
    await wu.at("camera").click()
    await expect(wu.at("camera")).to_have_attribute("aria-pressed", "true")
    await expect(wu.at("camera-preview")).to_be_visible()
    for visitor in (wu, ada):
        await expect(visitor.at("viewer-keyframe")).to_be_visible(timeout=SEEN_LIMIT_MS)
        await expect(visitor.at("lab-row")).to_have_count(len(SHEET.rows), timeout=SEEN_LIMIT_MS)
    await expect(ada.at("timeline-time")).to_have_text("live")
    await expect(ada.at("asset").first).to_contain_text("Live")
    marks = await ada.marks()
    assert len(marks) == len(SHEET.out_of_range)
    await wu.at("microphone").click()
    lines = ada.at("transcript-line")
    await expect(lines.last).to_contain_text("better", ignore_case=True, timeout=SEEN_LIMIT_MS)
    await wu.at("microphone").click()
    said = " ".join(await lines.all_inner_texts())
    assert word_error_rate(TEXTS["beckett"], said) <= 0.15
    await wu.at("camera").click()
    await expect(wu.at("camera-preview")).to_be_hidden()
    ended = ada.page.locator("[data-testid=asset]", has_text="camera")
    await expect(ended).to_have_attribute("data-status", "read", timeout=SEEN_LIMIT_MS)
    assert wu.complaints == ada.complaints == []


async def test_a_video_has_a_timeline_whose_marks_are_on_their_moment(browser, product, tmp_path):
    room = new_room()
    wu = await Visitor.arrive(browser, product.base, room, "Dr Wu", "Radiology")
    ada = await Visitor.arrive(browser, product.base, room, "Dr Ada", "Cardiology", (390, 844))
    page = page_of(SHEET)
    shots = [(Image.new("RGB", page.size, "black"), 2.0), (page, 3.0)]
    clip = encoded(shots, ".mp4", tmp_path, rate=5, options={"crf": "12"})
    await wu.at("file-input").set_input_files(
        {"name": "round.mp4", "mimeType": "video/mp4", "buffer": clip}
    )
    for visitor in (wu, ada):
        card = visitor.at("asset").first
        await expect(card).to_have_attribute("data-status", "read", timeout=SEEN_LIMIT_MS)
        await expect(visitor.at("timeline-flag")).to_have_count(1)
        await expect(visitor.at("viewer-keyframe")).to_have_attribute("data-frame", "0")
        assert await visitor.marks() == {}
    slider = wu.at("timeline-slider")
    await slider.focus()
    for _ in range(3):
        await slider.press("ArrowRight")
    await expect(wu.at("viewer-keyframe")).to_have_attribute("data-frame", "3")
    await expect(wu.at("timeline-time")).to_have_text("0:03")
    # Keyframe 3 shows what keyframe 2 shows, on which the sheet was read.
    assert len(await wu.marks()) == len(SHEET.out_of_range)
    await wu.at("tool-rectangle").click()
    await wu.drag((0.6, 0.8), (0.7, 0.9))
    async with consilium.connect(product.base, room=room, name="Dr Eve") as eve:
        await eve.until(
            lambda: any(mark.by.name == "Dr Wu" for mark in eve.state.annotations.values())
        )
        (mine,) = [m for m in eve.state.annotations.values() if m.by.name == "Dr Wu"]
        target = mine.annotation.target
        assert (target.frame, target.pts_us) == (3, 3_000_000)
    assert await ada.marks() == {}
    # A value in the table leads to the moment at which it was read.
    await ada.page.locator("#tab-lab").click()
    await ada.at("lab-row").first.click()
    await expect(ada.at("viewer-keyframe")).to_have_attribute("data-frame", "2")
    assert len(await ada.marks()) == len(SHEET.out_of_range)
    assert wu.complaints == ada.complaints == []
