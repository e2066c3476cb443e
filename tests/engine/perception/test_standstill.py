"""Readers stand still while a question is understood, and have half of the time all the same."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from engine.perception.config import PerceptionConfig
from engine.perception.pool import WorkerPool
from engine.perception.standstill import MOST_S, StandStill


async def until(is_so):
    """Wait for what a process or a timer does: nothing tells of it."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Marks:
    """Stands for a process: notes when it was sent which signal."""

    def __init__(self):
        self.heard = []

    def signal(self, number):
        self.heard.append((number, time.monotonic()))

    @property
    def numbers(self):
        return [number for number, _ in self.heard]


@pytest.fixture
def marks():
    return Marks()


async def test_it_goes_on_when_the_question_is_understood(marks):
    still = StandStill(lambda: [marks])
    still.want(True)
    assert marks.numbers == [signal.SIGSTOP]
    still.want(False)
    assert marks.numbers == [signal.SIGSTOP, signal.SIGCONT]


async def test_whatever_is_asked_readers_have_half_of_the_time(marks):
    still = StandStill(lambda: [marks])
    still.want(True)
    await until(lambda: len(marks.heard) == 5)
    still.want(False)
    assert marks.numbers == [signal.SIGSTOP, signal.SIGCONT] * 3
    at = [when for _, when in marks.heard]
    stood, worked = at[1] - at[0], at[2] - at[1]
    assert stood >= 0.9 * MOST_S and worked >= 0.9 * stood


async def test_a_flood_of_short_questions_does_not_stop_them_for_good(marks):
    still = StandStill(lambda: [marks])
    still.want(True)
    await asyncio.sleep(0.1)
    still.want(False)
    # The next question comes at once: readers have not yet worked as long as they stood.
    still.want(True)
    assert marks.numbers == [signal.SIGSTOP, signal.SIGCONT]
    still.want(False)


async def test_a_real_worker_stands_still_and_dies_with_its_parent():
    pool = WorkerPool("decode", 1, PerceptionConfig())
    await pool.start()
    try:
        [worker] = pool.workers
        process = psutil.Process(worker.pid)
        still = StandStill(lambda: pool.workers)
        still.want(True)
        await until(lambda: process.status() == psutil.STATUS_STOPPED)
        still.want(False)
        await until(lambda: process.status() != psutil.STATUS_STOPPED)
    finally:
        await pool.stop()


PARENT = """
import asyncio, os, signal
from engine.perception.config import PerceptionConfig
from engine.perception.pool import WorkerPool

async def main():
    pool = WorkerPool("decode", 1, PerceptionConfig())
    await pool.start()
    [worker] = pool.workers
    async with pool.lend() as worker:
        # Behind its first answer the worker has said that it ends with its parent.
        await worker._hand_over(request())
        worker.signal(signal.SIGSTOP)
        print(worker.pid, flush=True)
        await asyncio.sleep(60)

def request():
    from engine.perception.wire import Decode
    return Decode(media="m", path="/none", derived_dir="/none", declared_type=None, max_bytes=1,
                  max_pixels=1, max_ratio=1, max_series_pixels=1, cpu_s=9)

asyncio.run(main())
"""


def test_a_stopped_worker_whose_parent_was_killed_is_killed_too():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env={**os.environ}, text=True
    ) as parent:
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    # An orphan of a container without an init stays a zombie: that is dead as well.
    deadline = time.monotonic() + 10
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "it was left standing"
        time.sleep(0.02)
