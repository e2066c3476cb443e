"""Take the screenshots of this folder: `python -m docs.screenshots.take` from the root.

Starts the product on a free port, lets two people work in two browsers, and photographs them.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser, async_playwright, expect

from tests.e2e.conftest import CHROME_OPTIONS, chrome_path
from tests.support.filming import encoded
from tests.support.labsheet_render import photo, render_sheet
from tests.support.page import Visitor
from tests.support.product import Product

FOLDER = Path(__file__).resolve().parent


async def take(product: Product) -> None:
    """Walk through a consultation and keep what both people see."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chrome_path(), args=CHROME_OPTIONS
        )
        lab = await Visitor.arrive(browser, product.base, "ward-3", "Dr Wu", "Laboratory")
        heart = await Visitor.arrive(browser, product.base, "ward-3", "Dr Ada", "Cardiology")
        phone = await Visitor.arrive(
            browser, product.base, "ward-3", "Dr Li", "Endocrinology", size=(390, 844)
        )
        await lab.page.screenshot(path=FOLDER / "room-empty.png")
        sheet = render_sheet(11, "en")
        await lab.drop("sheet.png", sheet.png, "image/png")
        await expect(lab.at("lab-row")).to_have_count(len(sheet.rows), timeout=60_000)
        await lab.ask("Which values are out of range?")
        await expect(heart.at("turn-answer").first).not_to_be_empty(timeout=60_000)
        await lab.page.wait_for_timeout(1500)
        # What everybody is told at the door is gone by itself after a while.
        await expect(heart.at("toast")).to_have_count(0, timeout=20_000)
        await expect(phone.at("toast")).to_have_count(0, timeout=20_000)
        await heart.page.screenshot(path=FOLDER / "answer-streaming.png")
        await phone.page.screenshot(path=FOLDER / "phone.png")
        await lab.sees_turn(0, "done")
        await heart.drop("photograph.jpg", photo(1600, 1200, 1), "image/jpeg")
        await heart.at("tool-rectangle").click()
        await heart.drag((0.2, 0.2), (0.45, 0.5))
        await lab.at("asset").last.click()
        await lab.sees_full_picture("photograph.jpg")
        await lab.page.mouse.move(500, 400)
        await heart.page.mouse.move(620, 480)
        await lab.page.wait_for_timeout(500)
        await lab.page.screenshot(path=FOLDER / "two-people.png")
        await take_video(browser, product)
        await browser.close()


async def take_video(browser: Browser, product: Product) -> None:
    """A video with its timeline, at both widths."""
    lab = await Visitor.arrive(browser, product.base, "ward-4", "Dr Wu", "Laboratory")
    phone = await Visitor.arrive(
        browser, product.base, "ward-4", "Dr Li", "Endocrinology", size=(390, 844)
    )
    sheet = Image.open(io.BytesIO(render_sheet(21, "en").png)).convert("RGB")
    whole = Image.new("RGB", (sheet.width // 2 * 2, sheet.height // 2 * 2), "white")
    whole.paste(sheet)
    with tempfile.TemporaryDirectory() as folder:
        shots = [(Image.new("RGB", whole.size, "#20303a"), 2.0), (whole, 4.0)]
        clip = encoded(shots, ".mp4", Path(folder), rate=5, options={"crf": "14"})
    await lab.at("file-input").set_input_files(
        {"name": "ward round.mp4", "mimeType": "video/mp4", "buffer": clip}
    )
    card = lab.at("asset").first
    await expect(card).to_have_attribute("data-status", "read", timeout=60_000)
    for visitor, name in ((lab, "video.png"), (phone, "video-phone.png")):
        await visitor.at("timeline-slider").focus()
        for _ in range(3):
            await visitor.at("timeline-slider").press("ArrowRight")
        await expect(visitor.at("viewer-keyframe")).to_have_attribute("data-frame", "3")
        await expect(visitor.at("toast")).to_have_count(0, timeout=20_000)
        await visitor.page.screenshot(path=FOLDER / name)


def main() -> None:
    """Start, photograph, stop."""
    with tempfile.TemporaryDirectory() as folder:
        product = Product(Path(folder)).start()
        try:
            asyncio.run(take(product))
        finally:
            product.stop()


if __name__ == "__main__":
    main()
