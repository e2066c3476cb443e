"""What it takes to go on with a session that had to give way: from RAM, from disk, computed again.

`python -m benchmarks.kv_restore`; needs the embedded model (`consilium models pull`).
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from engine.embedded import pull
from engine.kv.context import Context
from engine.kv.keys import Identity
from engine.kv.store import Store
from engine.models.backend import Backend, Segment
from engine.settings import default_models_cache

KNOWN, NEW = 1700, 8
WINDOW = 512
ROUNDS = 7
KEY = "bench\0session"
AGAIN, RAM, CACHED, COLD = WAYS = ("computed again", "RAM", "disk, page cache", "disk, cold")


def tokens_of(count: int) -> list[int]:
    """Return tokens that spell nothing."""
    return [(index * 7919 + 13) % 5000 for index in range(count)]


def compute(backend: Backend, context: Context, tokens: list[int]) -> torch.Tensor:
    """Prefill in the windows of an idle engine; return the logits behind the last token."""
    logits = torch.empty(0)
    for start in range(0, len(tokens), WINDOW):
        part = tokens[start : start + WINDOW]
        is_last = start + WINDOW >= len(tokens)
        logits = backend.run([Segment(context, part, wants_logits=is_last)])
    return logits


def emptied(context: Context) -> Context:
    """Return the context without its tokens, its memory as a reservation leaves it."""
    context.crop(0)
    context.kept = None
    return context


def restored(store: Store, context: Context) -> float:
    """Do what the loop does for a turn that waits; return the seconds."""
    emptied(context)
    began = time.perf_counter()
    future = store.want(KEY)
    if future is not None:
        future.result()
    assert store.peek(KEY) is not None, "it was stored"
    store.restore(KEY, context, KNOWN)
    store.unwant(KEY)
    return time.perf_counter() - began


def timed(act: Callable[[], object]) -> float:
    """Return the seconds that an act takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def drop_page_cache(folder: Path) -> None:
    """Make the next read come from the disk itself."""
    for path in folder.glob("*.kv"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    """Print a table; the median of several rounds."""
    torch.set_num_threads(2)
    model = str(pull("smollm2-135m", default_models_cache(dict(os.environ))))
    backend = Backend.load(model, "bf16", "cpu", is_named=True)
    known, new = tokens_of(KNOWN), tokens_of(KNOWN + NEW)[KNOWN:]
    context = Context(backend.shape)
    context.resize(2048)
    compute(backend, context, known)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        identity = Identity(backend.fingerprint, backend.shape)
        limits = {"ram_bytes": 1 << 30, "disk_bytes": 4 << 30}
        store = Store(identity, folder=folder, **limits)
        store.start()
        staging = timed(lambda: store.keep(KEY, context, {}))
        writing = timed(store.stop)

        ways: dict[str, list[float]] = {way: [] for way in WAYS}
        steps: list[float] = []
        for _ in range(ROUNDS):
            ways[AGAIN].append(timed(lambda: compute(backend, emptied(context), known)))
            steps.append(timed(lambda: compute(backend, context, new)))
            context.crop(KNOWN)
            store = Store(identity, ram_bytes=1 << 30)
            began = time.perf_counter()
            store.demote(KEY, context, {})
            demoting = time.perf_counter() - began
            ways[RAM].append(restored(store, context))
            for way in (CACHED, COLD):
                store = Store(identity, folder=folder, **limits)
                store.start()
                # The folder is looked through at the engine's start, not for a turn.
                future = store.want("bench\0nobody")
                assert future is not None, "it has a disk"
                future.result()
                if way == COLD:
                    drop_page_cache(folder)
                ways[way].append(restored(store, context))
                store.stop()
    size = KNOWN * backend.shape.token_bytes
    step = median(steps)
    whole = median(ways[AGAIN])
    print(f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}")
    print(f"{KNOWN} tokens ({size / 1e6:.0f} MB) and {NEW} new ones, a step of {step * 1e3:.1f} ms")
    print(f"behind the turn: {staging * 1e3:.1f} ms in the loop, {writing * 1e3:.0f} ms beside it;")
    print(f"giving way to RAM: {demoting * 1e3:.1f} ms")
    print(
        "way                brought back, ms   with the step, ms   of computing: alone   with step"
    )
    for label, times in ways.items():
        alone = median(times)
        print(
            f"{label:18}   {alone * 1e3:15.1f}   {(alone + step) * 1e3:17.1f}"
            f"   {alone / whole:19.3f}   {(alone + step) / (whole + step):9.3f}"
        )


if __name__ == "__main__":
    main()
