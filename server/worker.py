"""One of several server processes: `python -m server.worker`, told what to do by its parent."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import uvicorn

from engine.client import EngineClient
from server.metrics import SharedNumbers
from server.serving import configure_logs, serve_socket
from server.workers import Assignment, decode


async def work(assignment: Assignment) -> None:
    """Serve what the parent's port is asked, until told to stop or the parent is gone."""
    settings = assignment.settings
    listening = socket.socket(fileno=assignment.listening)
    listening.setblocking(False)
    engine = EngineClient(Path(assignment.engine), ready_timeout_s=settings.engine_wait_s)
    stopping = asyncio.Event()

    def heard() -> None:
        # The parent says nothing more: what can be read is the end.
        if not os.read(sys.stdin.fileno(), 1):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            stopping.set()

    await engine.start()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), heard)
    numbers = SharedNumbers(Path(assignment.numbers), assignment.number)
    try:
        await serve_socket(settings, listening, engine, numbers, stopping)
    finally:
        await engine.stop()


def main() -> None:
    """Read the assignment and work."""
    configure_logs()
    # Unbuffered: what follows the line is left for `work`.
    with os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0) as stream:
        assignment = decode(stream.readline())
    config = uvicorn.Config(app="", loop="auto")
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(work(assignment))


if __name__ == "__main__":
    main()
