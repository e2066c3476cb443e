"""The disk tier: one file a session under a byte cap and above a floor of free space.

Not thread-safe: one thread calls it, and it may wait for the disk.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from blake3 import blake3

from engine.kv.blocks import Record
from engine.kv.context import Kept
from engine.kv.files import (
    Buffer,
    Damaged,
    Foreign,
    Save,
    Torn,
    frames_of,
    read_header,
    read_session,
)
from engine.kv.keys import Identity

log = logging.getLogger(__name__)

SUFFIX, UNFINISHED = ".kv", ".kv-new"
# A full or lost disk is tried again after this long.
RETRY_S = 60.0
# A file is written anew when more than half of it, and this much, was replaced by later blocks.
SPARE_BYTES = 1 << 20

Opener = Callable[[Path, str], BinaryIO]


def open_unbuffered(path: Path, mode: str) -> BinaryIO:
    """Open a file so that what was written is with the system at once."""
    return cast(BinaryIO, open(path, mode, buffering=0))


class _Lost(Exception):
    """Somebody deleted or changed the file under us."""


@dataclass
class _Entry:
    bytes: int
    number: int


class Disk:
    """Files of sessions in one folder, the least recently used go first.

    A second engine on the folder finds its lock held and goes without. Whatever fails is a miss or
    a save that did not happen, with a counter; the tier then rests for `RETRY_S`.
    """

    def __init__(
        self,
        folder: Path,
        identity: Identity,
        limit_bytes: int,
        floor_bytes: int,
        numbers: Iterator[int],
        *,
        opener: Opener = open_unbuffered,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self.limit_bytes = limit_bytes
        self._floor_bytes = floor_bytes
        self._numbers = numbers
        self._open_file = opener
        self._clock = clock
        self._lock: IO[bytes] | None = None
        self._off_until = 0.0
        self.used_bytes = 0
        self.counters: Counter[str] = Counter()
        # Insertion order is the order of last use.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def tokens_in(self, size_bytes: int) -> int:
        """Return about how many tokens a file of this size holds."""
        shape = self._identity.shape
        return max(size_bytes - shape.bytes_of(0), 0) // shape.token_bytes

    @property
    def is_off(self) -> bool:
        """Whether it rests; may be asked from any thread."""
        return self._clock() < self._off_until

    def open(self) -> bool:
        """Take the folder and find what an earlier engine left in it; False while that fails."""
        if self._lock is not None:
            return True
        if self.is_off:
            return False
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = open(self._folder / "lock", "wb")
        except OSError as error:
            self._rest(f"{self._folder} cannot be used: {error.strerror}")
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            self._rest(f"another engine uses {self._folder}")
            return False
        self._lock = lock
        try:
            self._scan()
        except OSError as error:
            self.close()
            self._rest(f"{self._folder} cannot be read: {error.strerror}")
            return False
        return True

    def close(self) -> None:
        """Leave the folder to another engine."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
            self._entries.clear()
            self.used_bytes = 0

    def keys(self) -> list[str]:
        """Return whose files are here, the least recently used first."""
        return list(self._entries)

    def number_of(self, key: str) -> int | None:
        """Return the save that a session's file ends with."""
        entry = self._entries.get(key)
        return entry.number if entry else None

    def size_of(self, key: str) -> int:
        """Return the bytes of a session's file."""
        entry = self._entries.get(key)
        return entry.bytes if entry else 0

    # -- the three acts -------------------------------------------------------------------------

    def write(self, save: Save) -> bool:
        """Append a save, or begin the file anew; False when it did not happen, all as before."""
        entry = self._entries.get(save.key)
        if save.follows is not None and (entry is None or entry.number != save.follows):
            self.counters["kv_saves_out_of_step"] += 1
            return False
        frames = frames_of(save, self._identity)
        size = sum(len(frame) for frame in frames)
        for attempt in range(2):
            if not self._make_room(size, save):
                self.counters["kv_saves_without_room"] += 1
                return False
            try:
                self._put(save, frames)
            except _Lost:
                self._forget(save.key)
                self.counters["kv_files_lost"] += 1
                return False
            except OSError as error:
                self.counters["kv_write_failures"] += 1
                # The disk is fuller than it said: what is oldest goes, once.
                if attempt or not self._evict_oldest(keep=save.key):
                    self._rest(f"KV cannot be written: {error.strerror}")
                    return False
            else:
                break
        before = self.size_of(save.key) if save.follows is not None else 0
        self.used_bytes += before + size - self.size_of(save.key)
        self._entries[save.key] = _Entry(before + size, save.number)
        self._entries.move_to_end(save.key)
        self.counters["kv_saves"] += 1
        return True

    def read(self, key: str) -> Record | None:
        """Return a session, wholly checked; None is a miss. What is not good is deleted."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        path = self._path(key)
        try:
            with self._open_file(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                loaded = read_session(file, size, self._identity, key)
            if loaded.end < size:
                # A save that was cut short; the next one is to stand behind the last whole one.
                self.counters["kv_files_torn"] += 1
                os.truncate(path, loaded.end)
            os.utime(path)
        except (OSError, Torn, Damaged, Foreign) as error:
            self._discard(key, path, error)
            return None
        self.used_bytes += loaded.end - entry.bytes
        entry.bytes = loaded.end
        self._entries.move_to_end(key)
        kept = Kept(loaded.memory.length, entry.number, frozenset(loaded.memory.states))
        return Record(loaded.memory, loaded.blocks, kept, "disk", loaded.states)

    def remove(self, key: str) -> bool:
        """Delete a session's file; False when it may still be there."""
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            log.error("a session's KV could not be deleted: %s", error.strerror)
            self.counters["kv_delete_failures"] += 1
            return False
        self._forget(key)
        return True

    def check_integrity(self) -> None:
        """Raise `AssertionError` unless what is counted is what lies in the folder."""
        lying = {path.name: path.stat().st_size for path in self._folder.glob("*.kv*")}
        known = {self._path(key).name: entry.bytes for key, entry in self._entries.items()}
        assert lying == known, f"{len(lying)} files, {len(known)} known"
        assert sum(known.values()) == self.used_bytes, "bytes counted are not those held"
        assert self.used_bytes <= self.limit_bytes, f"{self.used_bytes} of {self.limit_bytes}"

    # -- below ----------------------------------------------------------------------------------

    def _put(self, save: Save, frames: list[Buffer]) -> None:
        path = self._path(save.key)
        if save.follows is None:
            new = path.with_suffix(UNFINISHED)
            try:
                with self._open_file(new, "wb") as file:
                    os.chmod(new, 0o600)
                    _write_all(file, frames)
                os.replace(new, path)
            except OSError:
                with suppress(OSError):
                    new.unlink(missing_ok=True)
                raise
            return
        end = self._entries[save.key].bytes
        if not path.exists():
            raise _Lost
        with self._open_file(path, "r+b") as file:
            if os.fstat(file.fileno()).st_size != end:
                path.unlink()
                raise _Lost
            try:
                file.seek(end)
                _write_all(file, frames)
            except OSError:
                # A tail that cannot be cut off is skipped when the file is read.
                with suppress(OSError):
                    file.truncate(end)
                raise

    def _make_room(self, size: int, save: Save | None = None) -> bool:
        """Delete old files until `size` more bytes fit under the cap and above the floor."""
        mine = save.key if save is not None else None
        while self.used_bytes + size > self.limit_bytes or self._free_bytes() < size:
            if self._evict_oldest(keep=mine):
                continue
            # The file that is about to be replaced gives way when there is no room for two.
            is_replaced = save is not None and save.follows is None and mine in self._entries
            if not (is_replaced and mine is not None and self.remove(mine)):
                return False
        return True

    def _free_bytes(self) -> int:
        """Bytes that may be written before the floor is reached, whoever fills the disk."""
        try:
            system = os.statvfs(self._folder)
        except OSError:
            return 0
        return system.f_bavail * system.f_frsize - self._floor_bytes

    def _evict_oldest(self, keep: str | None) -> bool:
        oldest = next((key for key in self._entries if key != keep), None)
        if oldest is None or not self.remove(oldest):
            return False
        self.counters["kv_disk_evictions"] += 1
        return True

    def _scan(self) -> None:
        found: list[tuple[int, str, int]] = []
        for path in self._folder.iterdir():
            if path.suffix == UNFINISHED:
                path.unlink(missing_ok=True)
            elif path.suffix == SUFFIX:
                try:
                    with self._open_file(path, "rb") as file:
                        state = os.fstat(file.fileno())
                        header = read_header(file, state.st_size, self._identity)
                    if self._path(header.key) != path:
                        raise Damaged("the file has the name of another session")
                    found.append((state.st_mtime_ns, header.key, state.st_size))
                except (OSError, Torn, Damaged, Foreign) as error:
                    self._discard(None, path, error)
        for _, key, size in sorted(found):
            self._entries[key] = _Entry(size, next(self._numbers))
            self.used_bytes += size
        # The cap may have been lowered since.
        self._make_room(0)

    def _discard(self, key: str | None, path: Path, error: Exception) -> None:
        """Count and delete a file that cannot be used."""
        if isinstance(error, FileNotFoundError):
            kind = "kv_files_lost"
        elif isinstance(error, OSError):
            kind = "kv_read_failures"
        else:
            kind = "kv_files_foreign" if isinstance(error, Foreign) else "kv_integrity_failures"
        self.counters[kind] += 1
        log.warning("stored KV is not used: %s %s", type(error).__name__, error)
        with suppress(OSError):
            path.unlink(missing_ok=True)
        if key is not None:
            self._forget(key)

    def _forget(self, key: str) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self.used_bytes -= entry.bytes

    def _path(self, key: str) -> Path:
        # A digest, because a room's name may be any text and is nobody's business in a listing.
        return self._folder / (blake3(key.encode()).hexdigest(length=16) + SUFFIX)

    def _rest(self, why: str) -> None:
        self._off_until = self._clock() + RETRY_S
        self.counters["kv_disk_rests"] += 1
        log.warning("sessions are not kept on disk for %d s: %s", RETRY_S, why)


def _write_all(file: BinaryIO, frames: list[Buffer]) -> None:
    for frame in frames:
        left = memoryview(frame)
        while left:
            left = left[file.write(left) :]
