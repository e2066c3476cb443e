import os
import signal

import psutil
import pytest

from engine.api import Detected, EngineCode, EngineError, LevelReady
from engine.perception.config import PerceptionConfig
from engine.perception.pool import WorkerPool
from engine.perception.wire import Decode, PixelsReady
from tests.support.labsheet_render import photo


@pytest.fixture
async def pool():
    pool = WorkerPool("decode", 1, PerceptionConfig())
    await pool.start()
    yield pool
    await pool.stop()


def request(folder, content):
    path = folder / "upload"
    path.write_bytes(content)
    return Decode(
        media="m",
        path=str(path),
        derived_dir=str(folder / "derived"),
        declared_type=None,
        max_bytes=10**9,
        max_pixels=10**8,
        max_series_pixels=10**9,
        max_ratio=2_000,
        cpu_s=60,
    )


async def test_answers_come_one_by_one_and_the_worker_serves_again(pool, tmp_path):
    pids = set()
    for _ in range(2):
        answers = []
        async with pool.lend() as worker:
            finished = await worker.ask(request(tmp_path, photo(300, 200)), 20, answers.append)
            pids.add(worker.pid)
        kinds = [type(answer) for answer in answers]
        assert kinds == [Detected, PixelsReady, *[LevelReady] * 4]
        assert 0 < finished.timings["detected"] < finished.timings["levels"]
    assert len(pids) == 1


async def test_a_worker_that_died_while_idle_costs_nobody_anything(pool, tmp_path):
    async with pool.lend() as worker:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        await worker.ask(request(tmp_path, photo(300, 200)), 20, lambda _: None)
        assert worker.starts == 2


async def test_a_worker_that_hangs_is_given_up_and_replaced(pool, tmp_path):
    async with pool.lend() as worker:
        stopped = worker.pid
        assert stopped is not None
        os.kill(stopped, signal.SIGSTOP)
        with pytest.raises(EngineError) as late:
            await worker.ask(request(tmp_path, photo(300, 200)), 0.3, lambda _: None)
        assert late.value.code is EngineCode.MEDIA_TIMEOUT
        with pytest.raises(ProcessLookupError):
            os.kill(stopped, 0)
    assert worker.pid not in (None, stopped)


async def test_a_worker_never_loads_torch(pool, tmp_path):
    async with pool.lend() as worker:
        await worker.ask(request(tmp_path, photo(300, 200)), 20, lambda _: None)
        loaded = [library.path for library in psutil.Process(worker.pid).memory_maps()]
        assert any("PIL" in path for path in loaded)
        assert not [path for path in loaded if "torch" in path]


async def test_a_worker_sees_no_secrets_of_its_parent(monkeypatch):
    monkeypatch.setenv("CONSILIUM_SECRET", "s3cret")
    pool = WorkerPool("decode", 1, PerceptionConfig())
    await pool.start()
    try:
        environment = psutil.Process(pool.workers[0].pid).environ()
        assert "PYTHONPATH" in environment and "CONSILIUM_SECRET" not in environment
    finally:
        await pool.stop()
