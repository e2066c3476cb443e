"""What the deterministic mode costs: tokens a second beside the fast mode, in one run.

`python -m benchmarks.determinism`; needs the embedded model (`consilium models pull`).
"""

from __future__ import annotations

import os
import platform
import time

import torch

from engine.embedded import pull
from engine.kv.context import GRAIN, Context
from engine.models.backend import Backend, Segment
from engine.models.determinism import is_deterministic
from engine.settings import default_models_cache

STREAMS = (1, 8, 32)
CONTEXT = 128
STEPS = 24


def rate(backend: Backend, streams: int) -> float:
    """Tokens a second of `streams` sessions that decode together behind `CONTEXT` tokens."""
    contexts = [Context(backend.shape) for _ in range(streams)]
    for number, context in enumerate(contexts):
        context.resize(GRAIN)
        prompt = [(number * 31 + index * 7) % 5000 for index in range(CONTEXT)]
        backend.run([Segment(context, prompt, wants_logits=False)])
    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        backend.run([Segment(context, [11], wants_logits=True) for context in contexts])
        times.append(time.perf_counter() - began)
    return streams / sorted(times)[len(times) // 2]


def main() -> None:
    """Print a table; the median step of each."""
    torch.set_num_threads(2)
    folder = str(pull("smollm2-135m", default_models_cache(dict(os.environ))))
    fast = Backend.load(folder, "bf16", "cpu")
    exact = Backend.load(folder, "bf16", "cpu", is_deterministic=True)
    print(f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}")
    print(f"checked: fast {is_deterministic(fast)}, deterministic {is_deterministic(exact)}")
    print("streams   fast, tokens/s   deterministic, tokens/s   ratio")
    for streams in STREAMS:
        one, other = rate(fast, streams), rate(exact, streams)
        print(f"{streams:7}   {one:14.1f}   {other:23.1f}   {other / one:5.2f}")


if __name__ == "__main__":
    main()
