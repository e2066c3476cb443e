"""A worker serves the port that it inherited, and ends with its parent."""

from __future__ import annotations

import subprocess
import sys
import time

import httpx
import pytest

from server.config import Settings
from server.serving import bound_socket
from server.workers import Assignment, encode
from tests.support.product import ROOT


@pytest.mark.fault
def test_a_worker_serves_until_its_standard_input_ends(tmp_path, redis):
    with bound_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        worker = subprocess.Popen(
            [sys.executable, "-m", "server.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            pass_fds=(listening.fileno(),),
        )
        assignment = Assignment(
            number=0,
            listening=listening.fileno(),
            engine=str(tmp_path / "none.sock"),
            numbers=str(tmp_path),
            settings=Settings(folder=tmp_path, redis=redis.url, workers=2),
        )
        assert worker.stdin is not None
        worker.stdin.write(encode(assignment))
        worker.stdin.flush()
        assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=20).status_code == 200
    began = time.monotonic()
    worker.stdin.close()
    assert worker.wait(15) == 0
    assert time.monotonic() - began < 10
