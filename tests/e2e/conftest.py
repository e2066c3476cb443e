"""One running product for all end-to-end tests that do not kill it, and a real Chromium."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from playwright.async_api import async_playwright

from tests.support.product import ROOT, Product
from tests.support.redis_server import RedisServer

CHROME_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def chrome_path() -> str:
    """Find the system's Chromium; `CHROME_PATH` wins."""
    if stated := os.environ.get("CHROME_PATH"):
        return stated
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    mac = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
    assert mac.exists(), "no Chromium: make test-requirements"
    return str(mac)


MODES = ("one process", "two workers")


@pytest.fixture(scope="session", params=MODES)
def product(request: pytest.FixtureRequest):
    """The product as `consilium serve` starts it; needs `make web` and `make models`.

    Once as one process over SQLite, once as two workers over Redis with the people of each room
    at different workers: what people see is the same.
    """
    assert (ROOT / "web-client/dist/index.html").exists(), "the page is not built: make web"
    with tempfile.TemporaryDirectory(prefix="consilium-") as folder:
        if request.param == "one process":
            running = Product(Path(folder)).start()
            yield running
            running.stop()
            return
        redis = RedisServer(Path(folder) / "redis").start()
        options = ("--workers", "2", "--redis", redis.url)
        running = Product(Path(folder) / "house", *options).start_switched()
        yield running
        running.stop()
        redis.stop()
        together = [seats for seats in running.seats.values() if len(seats) > 1]
        assert all(len(set(seats)) > 1 for seats in together), "a room had one worker alone"


@pytest.fixture
async def browser():
    """A headless Chromium without a network of its own."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=chrome_path(), args=CHROME_OPTIONS
        )
        yield chromium
        await chromium.close()
