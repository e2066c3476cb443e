"""A real redis-server on a free port, with AOF that is on the disk when an answer comes."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

import redis

START_LIMIT_S = 20.0


class RedisServer:
    """One server with its data in `folder`; `kill` and `start` again keep data and port."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._folder = folder
        self._options = options or ("--appendonly", "yes", "--appendfsync", "always")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for `--redis`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> RedisServer:
        """Start and wait until it answers."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", str(self._folder), "--save", "", *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + START_LIMIT_S
        while not self._answers():
            assert time.monotonic() < end and self._process.poll() is None, "redis-server"
            time.sleep(0.02)
        return self

    def empty(self) -> None:
        """Forget everything."""
        with self.client() as client:
            client.flushall()

    def client(self) -> redis.Redis:
        """A plain client, for looking inside."""
        return redis.Redis(port=self.port)

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it."""
        self._end(signal.SIGTERM)

    def stall(self, *, stalls: bool) -> None:
        """Let it hang, or go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if stalls else signal.SIGCONT)

    def _end(self, with_signal: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(with_signal)
            self._process.wait(10)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.exceptions.ConnectionError:
            return False
