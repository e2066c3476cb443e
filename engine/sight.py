"""Pictures and recordings of waiting turns made ready, beside the loop that decodes."""

from __future__ import annotations

import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from msgspec.structs import replace

from engine.api import Turn
from engine.models.layout import Picture, Sound

log = logging.getLogger(__name__)

# By media id: one of a still, several of a video, then its sound.
Pictures = dict[str, tuple[Picture, ...]]
_Key = tuple[str, int, int]


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


class Sight:
    """Looks at the pictures of turns, and hears their recordings, on one thread of its own.

    Features are kept up to `cache_bytes`, the least recently used go first; those that a turn
    waits for live as long as it does.
    """

    def __init__(
        self, eyes: Looks, cache_bytes: int, max_pictures: int, ears: Listens | None = None
    ) -> None:
        self._eyes = eyes
        self._ears = ears
        self._cache_bytes = cache_bytes
        self._max_pictures = max_pictures
        self._kept: OrderedDict[_Key, Picture] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine-sight")
        self.counters: Counter[str] = Counter()
        self.kept_bytes = 0

    @property
    def hears(self) -> bool:
        """Whether recordings are given to the model."""
        return self._ears is not None

    def stop(self) -> None:
        """Give up what waits; returns when the picture in work is done."""
        self._thread.shutdown(cancel_futures=True)

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
        future = self._thread.submit(self._all, shown)
        future.add_done_callback(lambda _: done())
        return future

    def _all(self, shown: list[tuple[str, str, bool]]) -> Pictures:
        made: Pictures = {}
        # A recording that was too long to be kept takes nothing else's place.
        there = [one for one in shown if os.path.exists(one[1])]
        if len(there) < len(shown):
            self.counters["pictures_missing"] += len(shown) - len(there)
        for media, path, is_sound in there[-self._max_pictures :]:
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
