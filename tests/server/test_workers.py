"""The parent of several workers: what it tells them, and what happens when one dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx
import psutil
import pytest

from server.config import Settings
from server.workers import Assignment, decode, encode
from tests.support.product import Product
from tests.support.workers import workers_of


def test_an_assignment_is_read_as_it_was_written(tmp_path):
    settings = Settings(
        folder=tmp_path, redis="redis://x", workers=2, secret="s" * 40, allowed_origins=("a", "b")
    )
    told = Assignment(number=1, listening=7, engine="e", numbers="n", settings=settings)
    assert decode(encode(told)) == told
    assert isinstance(decode(encode(told)).settings.folder, Path)


@pytest.fixture
def product(tmp_path, redis):
    running = Product(tmp_path / "house", "--workers", "2", "--redis", redis.url)
    running.start(ready=False)
    yield running
    running.stop()


def eventually(is_so) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.fault
def test_a_dead_worker_is_replaced_and_its_numbers_are_forgotten(product):
    eventually(lambda: product.metric("consilium_buses_up") == 2)
    first = workers_of(product.pid)
    assert len(first) == 2
    os.kill(first[0].pid, signal.SIGKILL)
    eventually(lambda: len({w.pid for w in workers_of(product.pid)} - {w.pid for w in first}) == 1)
    eventually(lambda: product.metric("consilium_buses_up") == 2)
    assert httpx.get(product.base + "/healthz").status_code == 200


@pytest.mark.fault
def test_one_engine_serves_all_workers_and_nothing_is_left_after_the_end(product):
    eventually(lambda: len(workers_of(product.pid)) == 2)
    family = psutil.Process(product.pid).children(recursive=True)
    engines = [each for each in family if "engine.process" in " ".join(each.cmdline())]
    assert len(engines) == 1
    product.stop()
    gone, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


@pytest.mark.fault
def test_workers_end_when_their_parent_is_killed(product):
    eventually(lambda: len(workers_of(product.pid)) == 2)
    workers = workers_of(product.pid)
    product.kill()
    gone, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive


@pytest.mark.fault
def test_no_secret_is_in_the_process_list(tmp_path, redis):
    secret = "a-secret-that-nobody-may-see-0123456789"
    running = Product(
        tmp_path / "house",
        *("--workers", "2", "--redis", redis.url),
        env={"CONSILIUM_SECRET": secret},
    )
    running.start(ready=False)
    try:
        eventually(lambda: len(workers_of(running.pid)) == 2)
        family = psutil.Process(running.pid).children(recursive=True)
        assert not any(secret in " ".join(each.cmdline()) for each in family)
    finally:
        running.stop()
