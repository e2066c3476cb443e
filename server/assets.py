"""The content-addressed store of committed bytes, and what was derived from them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DISK_THREADS = 4


class Disk:
    """The threads that may wait for the disk, so that the event loop never does."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="disk")

    async def do(self, work: Callable[[], T]) -> T:
        """Run blocking work; raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Let the threads go when they are done."""
        self._threads.shutdown(wait=True)


class Assets:
    """Where bytes lie. Every path is made from a hash or an id that is checked here.

    folder/assets/ab/abcd…           committed bytes by SHA-256
    folder/derived/<asset>/work/     what perception writes; frames/<n> in it can be fetched,
                                     sound.wav is a short recording, decoded
    folder/derived/<asset>/<level>   levels that are complete
    folder/uploads/<asset>           uploads under way
    """

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder.resolve()
        self._disk = disk

    def original(self, sha256: str) -> Path:
        """Where the committed bytes with this hash lie."""
        if not _SHA256.fullmatch(sha256):
            raise ValueError("not a SHA-256")
        return self._folder / "assets" / sha256[:2] / sha256

    def work_folder(self, asset: str) -> Path:
        """Where perception may write while it looks at an asset."""
        return self._derived(asset) / "work"

    def level(self, asset: str, level: int) -> Path:
        """Where a complete level of an asset lies."""
        return self._derived(asset) / str(int(level))

    def frame(self, asset: str, number: int) -> Path:
        """Where perception puts a frame of a medical image, or a keyframe; complete once there."""
        return self.work_folder(asset) / "frames" / str(int(number))

    def sound(self, asset: str) -> Path:
        """Where perception leaves a short recording, decoded; complete once there."""
        return self.work_folder(asset) / "sound.wav"

    def upload(self, asset: str) -> Path:
        """Where the bytes of an upload under way are gathered."""
        return self._folder / "uploads" / _checked(asset)

    async def is_there(self, place: Path) -> bool:
        """Whether a file lies there now."""
        return await self._disk.do(place.exists)

    async def keep(self, part: Path, sha256: str) -> Path:
        """Move a complete upload into the store, durably; the same bytes are kept once."""
        return await self._disk.do(lambda: _move(part, self.original(sha256)))

    async def keep_level(self, asset: str, level: int, path: str) -> None:
        """Make a level that perception wrote one that can be fetched."""
        await self._disk.do(lambda: _link(Path(path), self.level(asset, level)))

    async def forget_frame(self, asset: str, number: int) -> None:
        """Delete a keyframe that nobody is told of any more."""
        await self._disk.do(lambda: self.frame(asset, number).unlink(missing_ok=True))

    def _derived(self, asset: str) -> Path:
        return self._folder / "derived" / _checked(asset)


def _checked(asset: str) -> str:
    if not _ID.fullmatch(asset):
        raise ValueError("not an asset id")
    return asset


def _move(part: Path, place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(part, place)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return place


def _link(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f".{place.name}.new")
    unfinished.unlink(missing_ok=True)
    os.link(source, unfinished)
    os.replace(unfinished, place)
