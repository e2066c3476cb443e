"""Bytes of a media item that arrive in pieces, gathered in one file of bounded size."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.api import EngineCode, EngineError


class Spool:
    """A file that grows by `write` until `end`, then lies at the path that `complete` returns."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._path = Path(folder) / ".spool"
        self._max_bytes = max_bytes
        self._size = 0
        self._is_ended = False
        self._touched = asyncio.Event()
        self._writing = asyncio.Lock()

    async def write(self, chunk: bytes) -> None:
        """Append; what comes after the end or beyond `max_bytes` is not kept."""
        async with self._writing:
            if self._is_ended or self._size > self._max_bytes:
                return
            self._size += len(chunk)
            self._touched.set()
            if self._size <= self._max_bytes:
                await asyncio.to_thread(self._append, chunk)

    async def end(self) -> None:
        """No more bytes come."""
        async with self._writing:
            self._is_ended = True
            self._touched.set()

    async def complete(self, idle_s: float) -> str:
        """Wait for the end and return the path.

        Raises `EngineError`: `media_too_big` beyond `max_bytes`, `media_timeout` when nothing came
        for `idle_s` seconds.
        """
        await asyncio.to_thread(self._append, b"")
        while not self._is_ended:
            if self._size > self._max_bytes:
                raise EngineError(
                    EngineCode.MEDIA_TOO_BIG,
                    f"The item has more than {self._max_bytes:,} bytes.",
                )
            self._touched.clear()
            try:
                async with asyncio.timeout(idle_s):
                    await self._touched.wait()
            except TimeoutError as silence:
                raise EngineError(
                    EngineCode.MEDIA_TIMEOUT, "The rest of the item did not arrive."
                ) from silence
        return str(self._path)

    def discard(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)

    def _append(self, chunk: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(chunk)
