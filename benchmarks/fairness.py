"""What other work costs whoever waits for words, as ratios within one run.

`python -m benchmarks.fairness [--rounds N]`; needs the embedded model (`consilium models pull`).
Times are those that an asker of the engine in this process sees.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import itertools
import os
import platform
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFont

from engine.api import (
    Completed,
    Media,
    Message,
    Turn,
    TurnCancelled,
    TurnDelta,
    TurnFailed,
    TurnKind,
)
from engine.config import EngineConfig
from engine.embedded import pull
from engine.engine import LocalEngine
from engine.perception.config import PerceptionConfig
from engine.perception.service import Perception
from engine.settings import default_models_cache

GAP_S = 0.3
_numbers = itertools.count()


def words(count: int) -> str:
    """Return so many English words, no two calls alike."""
    first = next(_numbers)
    sentences = (
        f"The value of row {first + index} was {(first * 7 + index) % 90}, not known to be high."
        for index in range(count // 16 + 1)
    )
    return " ".join(" ".join(sentences).split()[:count])


def turn(length: int, answer: int, kind: TurnKind = "text") -> Turn:
    """Return a question of a few more than `length` tokens in a session of its own."""
    name = f"b{next(_numbers)}"
    messages = (Message(role="user", text=f"Tell a long story about {words(length)}"),)
    return Turn(
        id=name, session=name, tenant="b", messages=messages, max_new_tokens=answer, kind=kind
    )


async def first_word_s(engine: LocalEngine) -> float:
    """Return how long a short question waits for its first word."""
    began = time.perf_counter()
    async for event in engine.submit(turn(4, 2)):
        if isinstance(event, TurnDelta):
            return time.perf_counter() - began
    raise AssertionError("it had an answer")


async def first_words(engine: LocalEngine, rounds: int) -> list[float]:
    """Ask now and then; return the waits."""
    waits = []
    for _ in range(rounds):
        await asyncio.sleep(GAP_S)
        waits.append(await first_word_s(engine))
    return waits


async def gaps(engine: LocalEngine, rounds: int) -> list[float]:
    """Return the times between the words of four answers that stream together."""
    found: list[float] = []

    async def listen() -> None:
        last = None
        async for event in engine.submit(turn(20, 20 * rounds)):
            if isinstance(event, TurnDelta):
                now = time.perf_counter()
                found.extend([now - last] if last else [])
                last = now

    await asyncio.gather(*(listen() for _ in range(4)))
    return found


async def cancels(engine: LocalEngine, rounds: int) -> list[float]:
    """Return how long cancelled prompts and answers take to end."""
    waits = []
    for number in range(rounds):
        asked = turn(800, 200)
        stream = engine.submit(asked)
        await anext(stream)
        await asyncio.sleep(0.05 * (number % 10))
        began = time.perf_counter()
        await engine.cancel(asked.id)
        async for event in stream:
            if isinstance(event, TurnCancelled):
                waits.append(time.perf_counter() - began)
    return waits


# -- what goes on beside it --------------------------------------------------------------------


async def turns_for_ever(engine: LocalEngine, length: int, answer: int, kind: TurnKind) -> None:
    """Ask one question after the other."""
    while True:
        async for event in engine.submit(turn(length, answer, kind)):
            # One that is refused at once would leave nobody else a turn of this event loop.
            assert not isinstance(event, TurnFailed), event


async def prompts_now_and_then(engine: LocalEngine) -> None:
    """Let a prompt of about 1,000 tokens come every other second."""
    while True:
        await asyncio.sleep(2)
        async for _ in engine.submit(turn(800, 1)):
            pass


async def pictures_for_ever(engine: LocalEngine, folder: Path, paths: list[Path]) -> None:
    """Have one photograph with text after the other looked at."""
    for path in itertools.cycle(paths):
        name = f"p{next(_numbers)}"
        media = Media(
            id=name, tenant="b", path=str(path), name=name, derived_dir=str(folder / name)
        )
        async for observation in engine.open(media):
            assert isinstance(observation, Completed) or observation.media == name


def photograph(name: str) -> bytes:
    """Draw two megapixels with forty lines of text."""
    image = Image.effect_noise((1600, 1200), 20).convert("RGB")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(22)
    for row in range(40):
        draw.text((40, 20 + 29 * row), f"{name} line {row}: potassium 4.{row}", "black", font)
    stored = io.BytesIO()
    image.save(stored, "JPEG", quality=85)
    return stored.getvalue()


@asynccontextmanager
async def beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run works for the length of a `with`."""
    tasks = [asyncio.create_task(work) for work in works]
    await asyncio.sleep(2 if tasks else 0)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# -- the table ---------------------------------------------------------------------------------


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` of them lie."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def told(label: str, without: list[float], with_it: list[float]) -> str:
    """Return a line of the table."""
    parts = []
    for share in (0.5, 0.99):
        one, other = percentile(without, share), percentile(with_it, share)
        parts.append(f"{one * 1e3:8.0f} {other * 1e3:8.0f} {other / one:7.2f}")
    return f"{label:46}{''.join(parts)}"


async def measure(engine: LocalEngine, folder: Path, rounds: int) -> None:
    """Print the table."""
    works: dict[str, Callable[[], list[Coroutine[Any, Any, None]]]] = {
        "pictures looked at, 2 at once": lambda: [
            pictures_for_ever(engine, folder, paths) for _ in range(2)
        ],
        "turns about pictures, 8 at once": lambda: [
            turns_for_ever(engine, 500, 40, "image") for _ in range(8)
        ],
        "an answer that nobody asked for": lambda: [turns_for_ever(engine, 20, 400, "background")],
    }
    paths = [folder / f"{number}.jpg" for number in range(4)]
    for path in paths:
        path.write_bytes(photograph(path.stem))
    await first_words(engine, 3)
    columns = "".join(f"{name:>8} {'with':>8} {'ratio':>7}" for name in ("p50", "p99"))
    print(f"{'first word of a short question, ms':46}{columns}")
    for label, make in works.items():
        alone = await first_words(engine, rounds)
        async with beside(*make()):
            print(told(label, alone, await first_words(engine, rounds)), flush=True)
    print("between words of four answers, ms")
    alone = await gaps(engine, rounds)
    async with beside(prompts_now_and_then(engine)):
        print(told("a prompt of 1,000 tokens each 2 s", alone, await gaps(engine, rounds)))
    before = (await engine.stats()).counters
    waits = await cancels(engine, rounds)
    after = (await engine.stats()).counters
    given_up = after["steps_abandoned"] - before.get("steps_abandoned", 0)
    print(
        f"cancel to its end: p50 {percentile(waits, 0.5) * 1e3:.0f} ms, longest "
        f"{max(waits) * 1e3:.0f} ms; {given_up:.0f} of {len(waits)} in the middle of a step"
    )


async def main(rounds: int) -> None:
    """Run the engine with perception in this process."""
    cache = default_models_cache(dict(os.environ))
    model = str(pull("smollm2-135m", cache))
    config = EngineConfig(model=model, threads=2, delta_interval_s=0.0, answer_cache_bytes=0)
    speech = str(pull("whisper-tiny-en", cache))
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}, {rounds} rounds"
    )
    engine = await LocalEngine.load(config, Perception(PerceptionConfig(speech_model=speech)))
    await engine.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            await measure(engine, Path(folder), rounds)
    finally:
        await engine.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    asyncio.run(main(parser.parse_args().rounds))
