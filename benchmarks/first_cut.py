"""What a person waits for: start-up, first level, first observation, first token, tokens a second.

    python -m benchmarks.first_cut [--rounds 3]

Starts the product as a user does, on a free port of loopback and in a folder of its own, and
prints one line a figure: the median and the spread of the rounds, each in a fresh room.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import subprocess
import tempfile
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import consilium
from protocol.events import AssetLevel, AssetObserved, AssetRead, TurnDelta, TurnDone
from tests.support.labsheet_render import photo, render_sheet
from tests.support.product import Product

QUESTION = "Explain to the patient in detail which values are out of range and what they mean."
MB = 1_000_000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    figures: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            began = time.monotonic()
            product = Product(Path(folder)).start(ready=False)
            figures["start to /healthz, s"].append(time.monotonic() - began)
            product.wait_ready()
            figures["start to /readyz, s"].append(time.monotonic() - began)
            try:
                # The first of each loads what is loaded on first use.
                asyncio.run(measure(product, defaultdict(list)))
                asyncio.run(measure(product, figures))
            finally:
                product.stop()
    print(f"commit {commit()}, {os.cpu_count()} CPU cores, {platform.machine()}, {rounds} rounds")
    for name, values in figures.items():
        print(
            f"{name:46} {statistics.median(values):9.3f}   ({min(values):.3f} to {max(values):.3f})"
        )


async def measure(product: Product, figures: dict[str, list[float]]) -> None:
    """Send a large photograph, then a lab sheet, then ask about it."""
    large = photo(3264, 2448, target_bytes=8 * MB)
    async with joined(product) as room:
        events = room.events(AssetLevel)
        began = time.monotonic()
        upload = asyncio.ensure_future(room.upload(large, name="large.jpg"))
        await anext(events)
        figures["8 MB photograph, upload to first level, s"].append(time.monotonic() - began)
        large_id = await upload
        # Its text is read on the same two cores; the sheet is to be measured alone.
        await room.until(lambda: room.state.assets[large_id].status == "read")
    async with joined(product) as room:
        events = room.events(AssetLevel, AssetObserved, AssetRead)
        began = time.monotonic()
        asset = await room.upload(render_sheet(1, "en").png, name="sheet.png")
        first: dict[type, float] = {}
        async for event in events:
            first.setdefault(type(event), time.monotonic() - began)
            if isinstance(event, AssetRead):
                break
        figures["lab sheet, upload to first level, s"].append(first[AssetLevel])
        figures["lab sheet, upload to first observation, s"].append(first[AssetObserved])
        figures["lab sheet, upload to all read, s"].append(first[AssetRead])
        events = room.events(TurnDelta, TurnDone)
        began = time.monotonic()
        await room.ask(QUESTION, assets=[asset], max_tokens=128)
        delta = await anext(events)
        while not isinstance(delta, TurnDelta):
            delta = await anext(events)
        token_s = time.monotonic() - began
        while not isinstance(delta, TurnDone):
            delta = await anext(events)
        figures["question about the sheet, to first word, s"].append(token_s)
        spent = delta.timings["total"] - delta.timings["first_token"]
        figures["one answer, tokens a second"].append((delta.answer_tokens - 1) / spent)


def joined(product: Product) -> Any:
    """Join a room that nobody used."""
    return consilium.connect(
        f"ws://127.0.0.1:{product.port}", room=f"bench-{uuid.uuid4().hex[:8]}", name="Bench"
    )


def commit() -> str:
    """Name what was measured."""
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
