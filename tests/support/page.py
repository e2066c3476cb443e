"""The page as a person uses it, and what it shows, read back for the tests."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from playwright.async_api import Browser, Page, expect

SHOWN_LIMIT_MS = 30_000


class Visitor:
    """One person in one browser page of their own profile."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    @classmethod
    async def arrive(
        cls,
        browser: Browser,
        base: str,
        room: str,
        name: str,
        department: str,
        size: tuple[int, int] = (1440, 900),
    ) -> Visitor:
        """Open the page in a new profile and join the room."""
        context = await browser.new_context(viewport={"width": size[0], "height": size[1]})
        visitor = cls(await context.new_page())
        await visitor.join(base, room, name, department)
        return visitor

    async def join(self, base: str, room: str, name: str, department: str) -> None:
        """Fill in the form, as a newcomer does."""
        await self.page.goto(f"{base}/?room={room}")
        await self.at("join-name").fill(name)
        await self.at("join-department").fill(department)
        await self.at("join-submit").click()
        await self.is_connected()

    async def crash(self) -> None:
        """Kill the page's process: no handler of the page runs, no socket is closed politely."""
        crashed = self.page.wait_for_event("crash")
        session = await self.page.context.new_cdp_session(self.page)
        crash = asyncio.ensure_future(session.send("Page.crash"))
        await crashed
        crash.cancel()

    async def is_connected(self) -> None:
        """Wait until the page says so."""
        await expect(self.at("status")).to_have_attribute(
            "data-state", "connected", timeout=SHOWN_LIMIT_MS
        )

    def at(self, test_id: str) -> Any:
        """Find by `data-testid`."""
        return self.page.get_by_test_id(test_id)

    async def drop(self, name: str, content: bytes, media_type: str) -> None:
        """Give the page a file, and wait until its picture is shown in full."""
        await self.at("file-input").set_input_files(
            {"name": name, "mimeType": media_type, "buffer": content}
        )
        await self.sees_full_picture(name)

    async def sees_full_picture(self, name: str = "") -> None:
        """Wait until the sharpest level is on the screen, of the picture of that name."""
        await expect(self.page.locator("#picture-name")).to_contain_text(
            name, timeout=SHOWN_LIMIT_MS
        )
        await expect(self.at("viewer-image")).to_have_attribute(
            "data-level", "0", timeout=SHOWN_LIMIT_MS
        )

    async def ask(self, question: str) -> None:
        """Type a question and send it."""
        await self.at("question").fill(question)
        await self.at("ask").click()

    async def sees_turn(self, index: int, *statuses: str) -> None:
        """Wait until the turn has one of the statuses."""
        pattern = "|".join(statuses)
        await expect(self.at("turn").nth(index)).to_have_attribute(
            "data-status", re.compile(f"^({pattern})$"), timeout=60_000
        )

    async def answer(self, index: int) -> str:
        """Read the text of an answer."""
        return str(await self.at("turn-answer").nth(index).inner_text())

    async def marks(self) -> dict[str, dict[str, str]]:
        """Read every mark by its id: who made it, and where, in picture pixels."""
        return dict(
            await self.page.evaluate(
                """() => Object.fromEntries([...document.querySelectorAll(
                '[data-testid=annotation]')].map(g => [g.dataset.id, {...g.dataset}]))"""
            )
        )

    async def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Draw by mouse over the viewer; the places are shares (0 to 1) of the picture."""
        box = await self.at("viewer-image").bounding_box()
        assert box is not None

        def place(share: tuple[float, float]) -> tuple[float, float]:
            return box["x"] + share[0] * box["width"], box["y"] + share[1] * box["height"]

        await self.page.mouse.move(*place(start))
        await self.page.mouse.down()
        await self.page.mouse.move(*place(((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)))
        await self.page.mouse.move(*place(end))
        await self.page.mouse.up()
