"""The product as a user starts it: its own processes, a free port, a data folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.support.switch import Switch
from tests.support.workers import workers_of

ROOT = Path(__file__).resolve().parent.parent.parent
START_LIMIT_S = 60.0


class Product:
    """One `consilium serve` on loopback; `stop` and `kill` end only what it started.

    With more workers than one, `port` is that of a switch which seats the people of a room at
    different workers (`tests.support.switch`).
    """

    def __init__(self, data_dir: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self._options = options
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._switch: Switch | None = None
        self._seats: dict[str, list[int]] = {}
        self.port = 0

    @property
    def base(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The web process."""
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """What the server wrote so far."""
        return (self.data_dir / "output.txt").read_text(errors="replace")

    def start(self, *, ready: bool = True) -> Product:
        """Start on a free port and wait for `/healthz`, and for `/readyz` unless told not to."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        port_file = self.data_dir / "port"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "consilium", "serve", "--port", "0"]
        command += ["--port-file", str(port_file), "--folder", str(self.data_dir)]
        with (self.data_dir / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *self._options],
                cwd=ROOT,
                env=self._env,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        self._until(lambda: port_file.exists() and port_file.read_text().strip() != "")
        self.port = int(port_file.read_text())
        self._until(lambda: self._answers("/healthz"))
        if ready:
            self.wait_ready()
        return self

    def start_switched(self, *, ready: bool = True) -> Product:
        """Start two workers behind a switch."""
        self.start(ready=ready)
        self._switch = Switch(self.pid, self.port).start()
        self.port = self._switch.port
        self._seats = self._switch.seats
        return self

    @property
    def is_switched(self) -> bool:
        """Whether it was started as two workers behind a switch."""
        return bool(self._seats)

    @property
    def seats(self) -> dict[str, list[int]]:
        """By room, the workers at which its people were seated, in their order."""
        return self._seats

    def wait_ready(self) -> None:
        """Wait until the model answers."""
        self._until(lambda: self._answers("/readyz"))

    def stop(self) -> None:
        """End as an operator does, and see that it ends."""
        self._end(signal.SIGTERM, limit_s=30.0)

    def kill(self) -> None:
        """End without a chance to tidy up."""
        self._end(signal.SIGKILL, limit_s=10.0)

    def metric(self, name: str) -> float:
        """Read one sample from `/metrics`."""
        for line in httpx.get(f"{self.base}/metrics").text.splitlines():
            if line.split(" ")[0] == name:
                return float(line.split(" ")[1])
        raise KeyError(name)

    def _answers(self, path: str) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(self.base + path, timeout=5).status_code == 200
        return False

    def _end(self, with_signal: signal.Signals, limit_s: float) -> None:
        if with_signal is signal.SIGKILL and self._process is not None:
            for worker in workers_of(self.pid):
                worker.kill()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(with_signal)
            self._process.wait(limit_s)
        # Last: what the workers say at their end still goes through it.
        if self._switch is not None:
            self._switch.stop()
            self._switch = None

    def _until(self, holds: object) -> None:
        assert callable(holds) and self._process is not None
        end = time.monotonic() + START_LIMIT_S
        while not holds():
            if self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"the server did not start:\n{self.output[-4000:]}")
            time.sleep(0.05)
