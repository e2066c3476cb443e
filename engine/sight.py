"""Pictures and recordings of waiting turns made ready, beside the loop that decodes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from engine.api import Turn
from engine.models.layout import Picture, Sound

log = logging.getLogger(__name__)

# By media id: one of a still, several of a video, then its sound.
Pictures = dict[str, tuple[Picture, ...]]
_Key = tuple[str, int, int]

# What comes at once is put into order: a turn with little to look at goes before one with much,
# unless that has waited for so long.
GATHER_S = 0.01
PATIENCE_S = 2.0


class Looks(Protocol):
    """What turns a file into a picture (`engine.models.eyes.Eyes`)."""

    def look(self, path: str) -> Picture:
        """Raise whatever a broken file makes a decoder raise."""
        ...


class Listens(Protocol):
    """What turns a file into a recording (`engine.models.ears.Ears`)."""

    def listen(self, path: str) -> Sound:
        """Raise whatever a broken file makes a decoder raise."""
        ...


def by_kind(turn: Turn, *, hears: bool = False) -> Turn:
    """Return a turn of text as one of pictures or video when its question brings such.

    For a model that `hears` a recording counts as a picture does.
    """
    brought = [s for s in turn.messages[-1].seen if s.pictures or (hears and s.sounds)]
    if turn.kind != "text" or not brought:
        return turn
    return replace(turn, kind="video" if any(seen.duration_s for seen in brought) else "image")


@dataclass(eq=False)
class _Job:
    """What one turn shows: (media id, path, whether it is a recording), oldest first."""

    shown: list[tuple[str, str, bool]]
    came: float
    bytes: int
    future: Future[Pictures] = field(default_factory=Future)


class Sight:
    """Looks at the pictures of turns, and hears their recordings, on one thread of its own.

    One at a time: several at once take as long on a processor, and the bits of one alone depend on
    nothing beside it. Features are kept up to `cache_bytes`, the least recently used go first;
    those that a turn waits for live as long as it does.
    """

    def __init__(
        self, eyes: Looks, cache_bytes: int, max_pictures: int, ears: Listens | None = None
    ) -> None:
        self._eyes = eyes
        self._ears = ears
        self._cache_bytes = cache_bytes
        self._max_pictures = max_pictures
        self._kept: OrderedDict[_Key, Picture] = OrderedDict()
        self._jobs: list[_Job] = []
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="engine-sight", daemon=True)
        self._thread.start()
        self.counters: Counter[str] = Counter()
        self.kept_bytes = 0

    @property
    def hears(self) -> bool:
        """Whether recordings are given to the model."""
        return self._ears is not None

    def stop(self) -> None:
        """Give up what waits; returns when the picture in work is done."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join()
        for job in self._jobs:
            job.future.cancel()

    def look(self, turn: Turn, done: Callable[[], None]) -> Future[Pictures] | None:
        """Begin with what a turn shows, the newest if that is too much; None without anything.

        The result holds what could be read, by media id; `done` is called from any thread.
        """
        shown = [
            (seen.media, path, is_sound)
            for message in turn.messages
            for seen in message.seen
            for is_sound, paths in ((False, seen.pictures), (True, seen.sounds))
            for path in paths
            if not is_sound or self._ears is not None
        ]
        if not shown:
            return None
        # A recording that was too long to be kept takes nothing else's place.
        there = [(one, size) for one in shown if (size := _bytes_of(one[1])) is not None]
        if len(there) < len(shown):
            self.counters["pictures_missing"] += len(shown) - len(there)
        newest = there[-self._max_pictures :]
        job = _Job([one for one, _ in newest], time.monotonic(), sum(size for _, size in newest))
        job.future.add_done_callback(lambda _: done())
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def _run(self) -> None:
        while (job := self._next()) is not None:
            if job.future.set_running_or_notify_cancel():
                job.future.set_result(self._all(job.shown))

    def _next(self) -> _Job | None:
        """Wait for the job that is next; None at the end."""
        with self._changed:
            while not (self._jobs or self._is_stopping):
                self._changed.wait()
        # Outside the lock, so that others may come.
        time.sleep(0 if self._is_stopping else GATHER_S)
        with self._changed:
            if self._is_stopping:
                return None
            now = time.monotonic()
            job = min(self._jobs, key=lambda job: _place(job, now))
            self._jobs.remove(job)
            return job

    def _all(self, shown: list[tuple[str, str, bool]]) -> Pictures:
        made: Pictures = {}
        for media, path, is_sound in shown:
            if (picture := self._one(path, is_sound)) is not None:
                made[media] = (*made.get(media, ()), picture)
        return made

    def _one(self, path: str, is_sound: bool) -> Picture | None:
        try:
            file = os.stat(path)
            key = (path, file.st_mtime_ns, file.st_size)
            if key in self._kept:
                self.counters["picture_hits"] += 1
                self._kept.move_to_end(key)
                return self._kept[key]
            if is_sound:
                assert self._ears is not None, "no model without ears is given recordings"
                picture: Picture = self._ears.listen(path)
            else:
                picture = self._eyes.look(path)
        # A file may be gone or broken in any way; the turn goes on with what was read of it.
        except Exception:
            log.exception("a picture could not be given to the model")
            self.counters["pictures_failed"] += 1
            return None
        self.counters["pictures_encoded"] += 1
        self._keep(key, picture)
        return picture

    def _keep(self, key: _Key, picture: Picture) -> None:
        self._kept[key] = picture
        self.kept_bytes += picture.features.bytes
        while self.kept_bytes > self._cache_bytes:
            _, dropped = self._kept.popitem(last=False)
            self.kept_bytes -= dropped.features.bytes


def _place(job: _Job, now: float) -> tuple[bool, float]:
    """Return what jobs are put into order by: those that waited too long, then the small ones."""
    is_patient = now - job.came < PATIENCE_S
    return is_patient, job.bytes if is_patient else job.came


def _bytes_of(path: str) -> int | None:
    """Return a file's length, which grows with what there is to look at; None without a file."""
    try:
        return os.stat(path).st_size
    except OSError:
        return None
