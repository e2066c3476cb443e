"""What other threads ask of the loop, kept until it looks between two steps."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class Intake:
    """Calls for one thread to make. `changed` guards what the loop shares with its callers."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        # Bounded by what is asked: one call a turn, and whoever asks for more waits for it.
        self._calls: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def call(self, call: Callable[[], None]) -> None:
        """Have something done between two steps; from any thread."""
        with self.changed:
            self._calls.append(call)
            self.changed.notify()

    def ask(self, call: Callable[[], Answer]) -> Future[Answer]:
        """Have something found out between two steps; what it raises goes to whoever asked."""
        future: Future[Answer] = Future()

        def find_out() -> None:
            # Whoever asked may have given up, at the latest when the engine stops.
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except Exception as fault:
                    future.set_exception(fault)

        self.call(find_out)
        return future

    def wake(self) -> None:
        """Have the loop look again at who may start; from any thread."""
        self.call(lambda: None)

    def take(self) -> None:
        """Do all that was asked for."""
        while self._calls:
            call = self._calls.popleft()
            try:
                call()
            # A caller's request may fail; it must not take the loop along.
            except Exception:
                log.exception("a request between two steps failed")
