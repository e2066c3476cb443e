"""One running product for all end-to-end tests that do not kill it, and a real Chromium."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from playwright.async_api import async_playwright

from tests.support.product import ROOT, Product

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


@pytest.fixture(scope="session")
def product():
    """The product as `consilium serve` starts it; needs `make web` and `make models`."""
    assert (ROOT / "web-client/dist/index.html").exists(), "the page is not built: make web"
    with tempfile.TemporaryDirectory(prefix="consilium-") as folder:
        running = Product(Path(folder)).start()
        yield running
        running.stop()


@pytest.fixture
async def browser():
    """A headless Chromium without a network of its own."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=chrome_path(), args=CHROME_OPTIONS
        )
        yield chromium
        await chromium.close()
