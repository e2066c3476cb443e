"""The thread that waits for the disk, so that no step of the model does."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from engine.kv.cost import Costs
from engine.kv.disk import Disk
from engine.kv.files import Save
from engine.kv.ram import Ram

log = logging.getLogger(__name__)

# What is staged is written in a second or two; whoever stops the engine waits no longer than this.
STOP_S = 15.0


def is_named(key: str, session: str) -> bool:
    """Whether the key is that of a session of this name, of whichever tenant."""
    return key.partition("\0")[2] == session


class Spool:
    """Deletions first, then reads, then saves; each session's saves in their order.

    What is read lands in RAM. Bounded by what callers reserve there: a save brings its bytes
    along, a read takes its own, and there is one read a session.
    """

    def __init__(self, ram: Ram, disk: Disk, costs: Costs) -> None:
        self._ram = ram
        self._disk = disk
        self._costs = costs
        self._changed = threading.Condition()
        self._wipes: OrderedDict[str, Future[None]] = OrderedDict()
        self._prefetches: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._reads: OrderedDict[str, Future[None]] = OrderedDict()
        self._saves: OrderedDict[str, list[Save]] = OrderedDict()
        # What the thread has in hand, and whether it was wiped meanwhile.
        self._reading: str | None = None
        self._writing: Save | None = None
        self._is_wiped = False
        self._stopping = False
        self.staged_bytes = 0
        self.counters: Counter[str] = Counter()
        self.read_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="engine-kv-disk", daemon=True)

    def start(self) -> None:
        """Begin with what an earlier engine left."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what is queued and give the folder back; a disk that hangs is left behind."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(STOP_S)

    def latest(self, key: str) -> int | None:
        """Return the number of the session's last save, done or under way."""
        with self._changed:
            if waiting := self._saves.get(key):
                return waiting[-1].number
            if self._writing is not None and self._writing.key == key:
                return self._writing.number
            return self._disk.number_of(key)

    def save(self, save: Save) -> None:
        """Queue a save whose bytes are reserved; they are released when it is done."""
        with self._changed:
            self._saves.setdefault(save.key, []).append(save)
            self.staged_bytes += save.bytes
            self._changed.notify()

    def fetch(self, key: str) -> Future[None]:
        """Bring a session to RAM if that pays; done when it is there or will not be."""
        with self._changed:
            future = self._reads.setdefault(key, Future())
            self._changed.notify()
            return future

    def prefetch(self, session: str, live: frozenset[str]) -> None:
        """Bring all sessions of a name to RAM, but for those that are live."""
        with self._changed:
            self._prefetches[session] = live
            self._changed.notify()

    def wipe(self, session: str) -> Future[None]:
        """Forget what is queued, in hand or on disk of a name; done when no file is left."""
        with self._changed:
            for key in [key for key in self._saves if is_named(key, session)]:
                for save in self._saves.pop(key):
                    self._let_go(save)
            for key in [key for key in self._reads if is_named(key, session)]:
                self._reads.pop(key).set_result(None)
            if self._reading is not None and is_named(self._reading, session):
                self._is_wiped = True
            future = self._wipes.setdefault(session, Future())
            self._changed.notify()
            return future

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        job: Callable[[], object] | None = self._disk.open
        while job is not None:
            try:
                job()
            # As below: the thread goes on with the next session.
            except Exception:
                log.exception("the KV of a session could not be moved")
                self.counters["kv_faults"] += 1
            job = self._next()
        self._disk.close()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while True:
                if self._wipes:
                    session, future = self._wipes.popitem(last=False)
                    return lambda: self._wipe(session, future)
                if self._reads:
                    key, future = self._reads.popitem(last=False)
                    self._reading, self._is_wiped = key, False
                    # What is still in RAM to be written is newer than what is on disk.
                    pending = self._saves.pop(key, [])
                    return lambda: self._read(key, pending, future)
                if self._prefetches:
                    session, live = self._prefetches.popitem(last=False)
                    return lambda: self._prefetch(session, live)
                if self._saves:
                    key, waiting = next(iter(self._saves.items()))
                    self._writing = waiting.pop(0)
                    if not waiting:
                        del self._saves[key]
                    save = self._writing
                    return lambda: self._write(save)
                if self._stopping:
                    return None
                self._changed.wait()

    def _write(self, save: Save) -> None:
        try:
            if self._disk.open() and not self._disk.is_off:
                self._disk.write(save)
        # One session's files must not take the others' along.
        except Exception:
            log.exception("the KV of a session could not be written")
            self.counters["kv_faults"] += 1
        finally:
            with self._changed:
                self._writing = None
                self._let_go(save)

    def _let_go(self, save: Save) -> None:
        self.staged_bytes -= save.bytes
        self._ram.release(save.bytes)

    def _read(self, key: str, pending: list[Save], future: Future[None]) -> None:
        try:
            for save in pending:
                self._write(save)
            if key not in self._ram and self._disk.open():
                self._bring(key)
        finally:
            with self._changed:
                self._reading = None
            future.set_result(None)

    def _bring(self, key: str) -> None:
        size = self._disk.size_of(key)
        if not size:
            return
        if not self._costs.should_read(size, self._disk.tokens_in(size)):
            self.counters["kv_recomputed_by_choice"] += 1
            return
        if not self._ram.reserve(size):
            self.counters["kv_reads_without_room"] += 1
            return
        began = time.monotonic()
        try:
            record = self._disk.read(key)
        except BaseException:
            self._ram.release(size)
            raise
        with self._changed:
            if record is None or self._is_wiped:
                self._ram.release(size)
                return
            # The file is larger than what it holds, by its frames and what was replaced.
            self._ram.release(size - record.bytes)
            self._ram.put(key, record)
        seconds = time.monotonic() - began
        self.read_seconds += seconds
        self._costs.note_read(size, seconds)

    def _prefetch(self, session: str, live: frozenset[str]) -> None:
        for key in self._disk.keys():
            if is_named(key, session) and key not in live and key not in self._ram:
                self.fetch(key)

    def _wipe(self, session: str, future: Future[None]) -> None:
        try:
            if not self._disk.open():
                # Files of another time may lie there; nobody can say that they are gone.
                self.counters["kv_wipes_missed"] += 1
                return
            for key in self._disk.keys():
                if is_named(key, session):
                    self._disk.remove(key)
        finally:
            future.set_result(None)
