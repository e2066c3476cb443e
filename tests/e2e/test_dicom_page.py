"""Medical images in the page: window and level, frames, and marks that stay on theirs."""

from __future__ import annotations

import math
import uuid

import numpy as np
import pytest
from playwright.async_api import expect
from pydicom import dcmread

from engine.perception.voi import Gray, Window, shades_of
from tests.support.dicoms import content, gray, shipped
from tests.support.page import SHOWN_LIMIT_MS, Visitor

pytestmark = pytest.mark.browser

CANVAS = """() => {
  const canvas = document.querySelector('[data-testid=viewer-frame]');
  const {width, height} = canvas;
  return Array.from(canvas.getContext('2d').getImageData(0, 0, width, height).data);
}"""


async def arrive(browser, product, name, room=None):
    room = room or f"dicom-{uuid.uuid4().hex[:8]}"
    return room, await Visitor.arrive(browser, product.base, room, name, "Radiology")


async def drop(visitor, name, file):
    await visitor.drop(name, file, "application/dicom")
    await sees_frame(visitor, 0)


async def sees_frame(visitor, number):
    await expect(visitor.at("viewer-frame")).to_have_attribute(
        "data-frame", str(number), timeout=SHOWN_LIMIT_MS
    )


async def canvas(visitor, height, width):
    pixels = np.array(await visitor.page.evaluate(CANVAS), dtype=np.uint8)
    return pixels.reshape(height, width, 4)[..., :3]


async def window(visitor):
    frame = visitor.at("viewer-frame")
    return [float(await frame.get_attribute(f"data-{name}")) for name in ("center", "width")]


async def test_gray_on_the_canvas_is_the_formulas_whatever_window_is_chosen(browser, product):
    _, wu = await arrive(browser, product, "Dr Wu")
    await drop(wu, "ct.dcm", shipped("CT_small.dcm").read_bytes())
    values = dcmread(shipped("CT_small.dcm")).pixel_array - 1024.0

    async def shows_exactly():
        center, width = await window(wu)
        wanted = Gray(windows=(Window(center=center, width=width),))
        shown = await canvas(wu, 128, 128)
        assert (shown == shades_of(values, wanted)[..., None]).all()
        return center, width

    at_first = await shows_exactly()
    await wu.at("window-center").fill("40")
    await wu.at("window-width").fill("400")
    await wu.at("window-width").press("Enter")
    await expect(wu.at("viewer-frame")).to_have_attribute("data-width", "400")
    assert await shows_exactly() == (40, 400)
    await wu.at("tool-window").click()
    await wu.drag((0.5, 0.5), (0.75, 0.25))
    await expect(wu.at("window-preset")).to_have_value("own")
    center, width = await shows_exactly()
    assert width > 400 and center < 40, "right widens, up lowers the center"
    assert await wu.marks() == {}
    await wu.at("window-preset").select_option("file")
    await expect(wu.at("viewer-frame")).to_have_attribute("data-width", f"{at_first[1]:g}")
    assert await shows_exactly() == at_first
    assert wu.complaints == []


async def test_w75_monochrome1_is_inverted_in_the_levels_and_on_the_canvas_alike(browser, product):
    _, wu = await arrive(browser, product, "Dr Wu")
    samples = np.arange(0, 4096, 16, dtype=np.uint16).reshape(16, 16)
    made = gray(
        samples, WindowCenter=2048, WindowWidth=4096, PhotometricInterpretation="MONOCHROME1"
    )
    await drop(wu, "x-ray.dcm", content(made))
    shown = await canvas(wu, 16, 16)
    assert shown[0, 0].tolist() == [255] * 3 and shown[15, 15].tolist() == [1] * 3
    full = await wu.page.evaluate(
        """async () => {
          const picture = document.querySelector('[data-testid=viewer-image]');
          const canvas = new OffscreenCanvas(16, 16);
          canvas.getContext('2d').drawImage(picture, 0, 0);
          return Array.from(canvas.getContext('2d').getImageData(0, 0, 16, 16).data);
        }"""
    )
    assert (np.array(full).reshape(16, 16, 4)[..., :3] == shown).all()


async def test_frames_are_stepped_by_keyboard_and_a_mark_is_on_its_frame_alone(browser, product):
    room, wu = await arrive(browser, product, "Dr Wu")
    _, ada = await arrive(browser, product, "Dr Ada", room)
    await drop(wu, "echo.dcm", shipped("examples_ybr_color.dcm").read_bytes())
    await sees_frame(ada, 0)
    await expect(wu.at("frame-count")).to_have_text("1 / 30")
    await wu.at("frame-slider").focus()
    for _ in range(3):
        await wu.page.keyboard.press("ArrowRight")
    await sees_frame(wu, 3)
    expected = dcmread(shipped("examples_ybr_color.dcm")).pixel_array
    assert (await canvas(wu, 240, 320) == expected[3]).all()
    await wu.at("tool-rectangle").click()
    await wu.drag((0.25, 0.25), (0.5, 0.5))
    await expect(wu.at("annotation")).to_have_count(1)
    await wu.at("viewer").focus()
    await wu.page.keyboard.press("PageDown")
    await sees_frame(wu, 4)
    await expect(wu.at("annotation")).to_have_count(0)
    await ada.at("frame-slider").fill("3")
    await sees_frame(ada, 3)
    await expect(ada.at("annotation")).to_have_count(1)
    ((_, mark),) = (await ada.marks()).items()
    box = await ada.at("viewer-image").bounding_box()
    pixel = 320 / box["width"]
    for name, value in {"x": 80, "y": 60, "width": 80, "height": 60}.items():
        assert math.isclose(float(mark[name]), value, abs_tol=max(1.0, pixel))
    await ada.at("frame-slider").fill("0")
    await expect(ada.at("annotation")).to_have_count(0)
    await expect(ada.at("tool-window")).to_be_hidden()
    assert wu.complaints == ada.complaints == []


async def test_a_mark_begun_on_one_frame_never_lands_on_another(browser, product):
    _, wu = await arrive(browser, product, "Dr Wu")
    await drop(wu, "echo.dcm", shipped("examples_ybr_color.dcm").read_bytes())
    box = await wu.at("viewer-image").bounding_box()
    await wu.page.mouse.move(box["x"] + 350, box["y"] + 250)
    await wu.page.mouse.down()
    await wu.page.mouse.move(box["x"] + 390, box["y"] + 290)
    await wu.page.keyboard.press("PageDown")
    await sees_frame(wu, 1)
    await wu.page.mouse.move(box["x"] + 450, box["y"] + 350)
    await wu.page.mouse.up()
    # One that is begun and ended on this frame is made: so nothing else was before it.
    await wu.drag((0.5, 0.5), (0.75, 0.75))
    await expect(wu.at("annotation")).to_have_count(1)
    await wu.page.keyboard.press("PageUp")
    await sees_frame(wu, 0)
    await expect(wu.at("annotation")).to_have_count(0)
