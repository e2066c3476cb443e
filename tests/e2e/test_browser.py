"""Two people in two browsers, one room, one picture."""

from __future__ import annotations

import re
import time
import uuid

import pytest
from playwright.async_api import expect

from server.auth import make_token
from tests.support.labsheet_render import photo, render_sheet
from tests.support.page import Visitor
from tests.support.product import Product

pytestmark = pytest.mark.browser

SECRET = "a secret of at least thirty-two bytes"

WATCH_SHIFTS = """() => {
  window.shifts = 0;
  new PerformanceObserver(list => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts += entry.value;
  }).observe({type: 'layout-shift', buffered: true});
}"""
WATCH_MARKS = """() => {
  window.seen = {};
  const look = () => document.querySelectorAll('[data-testid=annotation]').forEach(g => {
    window.seen[g.dataset.id] ??= Date.now();
  });
  new MutationObserver(look).observe(document.body, {subtree: true, childList: true});
  look();
}"""


def new_room() -> str:
    return f"e2e-{uuid.uuid4().hex[:8]}"


async def two_people(browser, product, room):
    wu = await Visitor.arrive(browser, product.base, room, "Dr Wu", "Radiology")
    ada = await Visitor.arrive(browser, product.base, room, "Dr Ada", "Cardiology")
    return wu, ada


async def test_a_box_drawn_in_one_page_is_in_the_other_within_300_ms_at_the_same_pixels(
    browser, product
):
    wu, ada = await two_people(browser, product, new_room())
    await wu.drop("photo.jpg", photo(1600, 1200, 1), "image/jpeg")
    await ada.sees_full_picture()
    for visitor in (wu, ada):
        await visitor.page.evaluate(WATCH_MARKS)
    await wu.at("tool-rectangle").click()
    before = set(await wu.marks())
    await wu.drag((0.25, 0.25), (0.5, 0.75))
    await expect(ada.at("annotation")).to_have_count(len(before) + 1)
    (mark_id,) = set(await ada.marks()) - before
    await expect(wu.page.locator(f"[data-testid=annotation][data-id='{mark_id}']")).to_be_visible()
    drawn = await wu.page.evaluate("id => window.seen[id]", mark_id)
    shown = await ada.page.evaluate("id => window.seen[id]", mark_id)
    assert shown - drawn < 300
    here, there = (await wu.marks())[mark_id], (await ada.marks())[mark_id]
    expected = {"x": 400, "y": 300, "width": 400, "height": 600}
    for name, value in expected.items():
        assert float(here[name]) == float(there[name])
        # The mouse moves by whole screen pixels, each of which covers several picture pixels.
        scale = 1600 / (await wu.at("viewer-image").bounding_box())["width"]
        assert abs(float(there[name]) - value) <= max(1.0, scale)
    assert there["actorKind"] == "person"
    assert wu.complaints == ada.complaints == []


async def test_a_mark_begun_on_one_picture_never_lands_on_another(browser, product):
    wu, ada = await two_people(browser, product, new_room())
    await wu.drop("first.jpg", photo(800, 600, 1), "image/jpeg")
    box = await wu.at("viewer-image").bounding_box()
    await wu.page.mouse.move(box["x"] + 450, box["y"] + 300)
    await wu.page.mouse.down()
    await wu.page.mouse.move(box["x"] + 490, box["y"] + 340)
    # The second picture comes up under the pressed pointer.
    await wu.drop("second.jpg", photo(400, 1200, 1), "image/jpeg")
    await wu.page.mouse.move(box["x"] + 560, box["y"] + 420)
    await wu.page.mouse.up()
    await wu.drag((0.25, 0.25), (0.5, 0.5))
    await expect(wu.at("annotation")).to_have_count(1)
    (mark,) = (await wu.marks()).values()
    assert abs(float(mark["x"]) - 100) < 5 and abs(float(mark["y"]) - 300) < 5
    await ada.at("asset").first.click()
    await ada.sees_full_picture("first.jpg")
    assert await ada.marks() == {}


async def test_the_layout_does_not_move_while_levels_load(browser, product):
    wu, _ = await two_people(browser, product, new_room())
    await wu.page.evaluate(WATCH_SHIFTS)
    await wu.drop("photo.jpg", photo(3264, 2448, 6), "image/jpeg")
    assert await wu.page.evaluate("() => window.shifts") == 0


async def test_the_lab_table_fills_and_out_of_range_rows_are_marked(browser, product):
    wu, ada = await two_people(browser, product, new_room())
    sheet = render_sheet(3, "en")
    await wu.drop("sheet.png", sheet.png, "image/png")
    await expect(ada.at("lab-row")).to_have_count(len(sheet.rows), timeout=60_000)
    flagged = ada.page.locator("[data-testid=lab-row]:not([data-flag=normal])")
    await expect(flagged).to_have_count(len(sheet.out_of_range))
    by_model = ada.page.locator("[data-testid=annotation][data-actor-kind=model]")
    await expect(by_model).to_have_count(len(sheet.out_of_range))
    assert wu.complaints == ada.complaints == []


async def test_a_page_killed_mid_answer_shows_the_identical_answer_when_it_is_back(
    browser, product
):
    room = new_room()
    wu, ada = await two_people(browser, product, room)
    sheet = render_sheet(4, "en")
    await wu.drop("sheet.png", sheet.png, "image/png")
    await expect(wu.at("lab-row")).to_have_count(len(sheet.rows), timeout=60_000)
    await wu.ask("Explain in several sentences which values are out of range.")
    await expect(ada.at("turn-answer").first).not_to_be_empty(timeout=30_000)
    # The page dies while words come; nothing of it gets to say goodbye.
    await wu.crash()
    back = Visitor(await (await browser.new_context()).new_page())
    await back.join(product.base, room, "Dr Wu", "Radiology")
    await ada.sees_turn(0, "done")
    await back.sees_turn(0, "done")
    await back.sees_full_picture()
    assert await back.answer(0) == await ada.answer(0) != ""
    assert await back.marks() == await ada.marks()
    assert back.complaints == ada.complaints == []


async def test_interrupting_ends_the_answer_for_everyone(browser, product):
    wu, ada = await two_people(browser, product, new_room())
    await wu.ask("Write a long story about a hospital, with many details.")
    await expect(wu.at("turn-answer").first).not_to_be_empty(timeout=30_000)
    await ada.at("interrupt").click()
    for visitor in (wu, ada):
        await visitor.sees_turn(0, "cancelled")
    assert await wu.answer(0) == await ada.answer(0)


async def test_the_page_is_usable_on_a_phone(browser, product):
    small = await Visitor.arrive(browser, product.base, new_room(), "Dr Li", "Lab", size=(390, 844))
    await small.drop("photo.jpg", photo(1600, 1200, 1), "image/jpeg")
    widths = await small.page.evaluate(
        "() => [document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert widths[0] <= widths[1]
    await small.ask("What is a normal potassium?")
    await small.sees_turn(0, "done")
    assert small.complaints == []


async def test_a_label_of_10_kb_moves_nothing_W88(browser, product):
    wu, ada = await two_people(browser, product, new_room())
    await wu.drop("photo.jpg", photo(1600, 1200, 1), "image/jpeg")
    await wu.ask("<img src=x onerror=alert(1)>" + "long " * 1_500)
    await expect(ada.at("turn").first).to_be_visible()
    widths = await ada.page.evaluate(
        "() => [document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert widths[0] <= widths[1]
    assert await ada.page.locator("img[src=x]").count() == 0
    assert re.search("onerror", await ada.at("turn").first.inner_text())


async def test_a_mark_is_named_deleted_and_brought_back_by_keys_alone(browser, product):
    wu, ada = await two_people(browser, product, new_room())
    await wu.drop("photo.jpg", photo(1600, 1200, 1), "image/jpeg")
    await ada.sees_full_picture()
    await wu.at("tool-rectangle").click()
    await wu.drag((0.25, 0.25), (0.5, 0.75))
    await expect(ada.at("annotation")).to_have_count(1)
    mark = wu.at("annotation").first
    await mark.focus()
    await wu.page.keyboard.press("Enter")
    await expect(wu.at("mark-label")).to_be_focused()
    await wu.page.keyboard.type("effusion")
    await wu.page.keyboard.press("Enter")
    await expect(wu.at("viewer")).to_be_focused()
    await expect(ada.at("annotation").first).to_have_attribute("aria-label", re.compile("effusion"))
    await mark.focus()
    await wu.page.keyboard.press("Delete")
    await expect(ada.at("annotation")).to_have_count(0)
    await expect(wu.at("viewer")).to_be_focused()
    await wu.page.keyboard.press("Control+z")
    await expect(ada.at("annotation")).to_have_count(1)
    assert wu.complaints == ada.complaints == []


async def test_a_focused_mark_stands_out_on_white_as_on_black(browser, product):
    wu = await Visitor.arrive(browser, product.base, new_room(), "Dr Wu", "Radiology")
    await wu.drop("photo.jpg", photo(1600, 1200, 1), "image/jpeg")
    await wu.at("tool-rectangle").click()
    await wu.drag((0.25, 0.25), (0.5, 0.75))
    await wu.page.keyboard.press("Shift")
    await wu.at("annotation").first.focus()
    dark, light = wu.page.locator(".ring.dark"), wu.page.locator(".ring.light")
    for ring, colour in ((dark, "rgb(12, 16, 20)"), (light, "rgb(255, 255, 255)")):
        await expect(ring).to_have_attribute("d", re.compile("^M"))
        await expect(ring).to_have_css("stroke", colour)
    around = await dark.bounding_box()
    inside = await wu.page.locator(".mark .line").bounding_box()
    assert around["x"] < inside["x"] and around["width"] > inside["width"] + 4
    await wu.at("viewer").focus()
    await expect(dark).not_to_have_attribute("d", re.compile("."))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The product where everybody needs an invitation."""
    folder = tmp_path_factory.mktemp("guarded")
    running = Product(folder, env={"CONSILIUM_SECRET": SECRET}).start()
    yield running
    running.stop()


def link(product, room, *, role="member", name="Dr Wu", minutes=10, claimed=None):
    """An invitation link, as whoever runs the server hands it out."""
    token = make_token(
        SECRET,
        room=claimed or room,
        participant=name.replace(" ", "-"),
        name=name,
        department="Laboratory",
        role=role,
        expires_at=time.time() + 60 * minutes,
    )
    return f"{product.base}/?room={room}#token={token}"


async def invited(browser, address):
    """Follow an invitation link, in a new profile, up to the card."""
    visitor = Visitor(await (await browser.new_context()).new_page())
    await visitor.page.goto(address)
    return visitor


async def test_an_invitation_says_who_joins_and_one_press_is_enough(browser, guarded):
    room = new_room()
    wu = await invited(browser, link(guarded, room))
    await expect(wu.at("join-as")).to_have_text("You join as Dr Wu, Laboratory.")
    await expect(wu.at("join-name")).to_be_hidden()
    await expect(wu.at("join-department")).to_be_hidden()
    await wu.page.keyboard.press("Enter")
    await wu.is_connected()
    await expect(wu.at("person")).to_contain_text("Dr Wu")
    assert wu.page.url == f"{guarded.base}/?room={room}"
    assert wu.complaints == []


async def test_who_is_turned_away_is_told_why_at_the_door_for_good(browser, guarded):
    room = new_room()
    for address, words in (
        (f"{guarded.base}/?room={room}", "This server needs an invitation link."),
        (link(guarded, room, minutes=-1), "Your invitation has ended; ask for a new link."),
        (link(guarded, room, claimed="other-room"), "Your invitation is for another room."),
    ):
        visitor = await invited(browser, address)
        if "#" not in address:
            await visitor.at("join-name").fill("Dr Wu")
        await visitor.at("join-submit").click()
        await expect(visitor.at("join-why")).to_have_text(words)
        await expect(visitor.at("viewer")).to_be_hidden()
        await visitor.page.reload()
        await expect(visitor.at("join-why")).to_have_text(words)
        await expect(visitor.at("error-toast")).to_have_count(0)
    await visitor.at("join-submit").click()
    await visitor.is_connected()
    await expect(visitor.page.locator("#room-name")).to_have_text("other-room")


async def test_a_new_link_lets_somebody_in_whose_invitation_ended(browser, guarded):
    room = new_room()
    wu = await invited(browser, link(guarded, room, minutes=-1))
    await wu.at("join-submit").click()
    await expect(wu.at("join-why")).to_be_visible()
    await wu.page.goto(link(guarded, room))
    await wu.is_connected()
    await expect(wu.at("viewer")).to_be_visible()
    await expect(wu.at("join-why")).to_be_hidden()


async def test_an_observer_is_offered_nothing_that_would_be_refused(browser, guarded):
    room = new_room()
    wu = await invited(browser, link(guarded, room))
    ada = await invited(browser, link(guarded, room, name="Dr Ada", role="observer"))
    eye = await invited(browser, link(guarded, room, name="Camera 1", role="camera"))
    for visitor in (wu, ada, eye):
        await visitor.at("join-submit").click()
        await visitor.is_connected()
    await expect(ada.at("role-note")).to_have_text(
        "You are here as an observer: you can look and read."
    )
    for offered in ("tool-rectangle", "question", "ask", "drop-zone", "camera"):
        await expect(ada.at(offered)).to_be_hidden()
    await expect(ada.page.locator("#add-files")).to_be_hidden()
    await expect(ada.at("nothing-here")).to_be_visible()
    await expect(eye.at("question")).to_be_hidden()
    await expect(eye.at("camera")).to_be_visible()
    await expect(eye.page.locator("#add-files")).to_be_visible()
    await expect(wu.at("role-note")).to_be_hidden()
    await expect(wu.at("person").filter(has_text="Dr Ada")).to_contain_text("observer")
    await wu.drop("photo.jpg", photo(800, 600, 1), "image/jpeg")
    await ada.sees_full_picture("photo.jpg")
    assert ada.complaints == eye.complaints == []
