"""One upload: bytes that come in pieces, go to the disk in order, and are checked at the end."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from protocol.errors import ErrorCode
from protocol.media import MediaFrame
from protocol.shapes import Actor
from server.assets import Disk

_READ_BYTES = 1024 * 1024


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What the sender said about an upload; kept beside its bytes so that it can go on."""

    asset: str
    room: str
    by: Actor
    name: str
    media_type: str = ""
    size: int | None = None
    sha256: str | None = None
    kind: Literal["file", "camera", "microphone"] = "file"
    asks: bool = False

    @property
    def is_live(self) -> bool:
        """Whether it is recorded while it is sent: what came is then all there will be."""
        return self.kind == "microphone"


class Listener(Protocol):
    """Who hears a microphone while its bytes are stored."""

    def take(self, chunk: bytes) -> None:
        """Take bytes as they come; never waits."""
        ...

    def committed(self) -> None:
        """All bytes are stored."""
        ...

    def abandon(self) -> None:
        """The upload came to nothing."""
        ...


class UploadPeer(Protocol):
    """The connection that sends an upload's bytes now."""

    def granted(self, received: int, credit: int) -> None:
        """So much is on the disk, and so much more may be sent."""
        ...

    def ended(self, sha256: str | None, code: ErrorCode | None, message: str) -> None:
        """The upload is over: committed when `code` is None."""
        ...

    def taken_over(self) -> None:
        """Another connection sends the rest."""
        ...


class Refused(Exception):
    """The upload ends; `is_final` when it cannot be gone on with."""

    def __init__(self, code: ErrorCode, message: str, *, is_final: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_final = is_final


class Upload:
    """Gathers the bytes of one asset; memory is bounded by the credit that was granted.

    `accepted` bytes came, `received` of them are on the disk. `receive_all` writes until `finish`
    was called and everything is on the disk.
    """

    def __init__(self, claim: Claim, path: Path, disk: Disk, max_bytes: int) -> None:
        self.claim = claim
        self.path = path
        self.received = 0
        self.accepted = 0
        self.peer: UploadPeer | None = None
        self.listener: Listener | None = None
        self._disk = disk
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self._is_finished = False
        self._is_given_up = False
        self._preparing: asyncio.Future[None] | None = None
        self._is_handed_over = False

    async def prepare(self) -> None:
        """Make the file, or take up what an earlier run of the server left; raises `OSError`.

        Of several who call this, all return when it is done.
        """
        if self._preparing is None:
            self._preparing = asyncio.ensure_future(self._prepare())
        await asyncio.shield(self._preparing)

    async def _prepare(self) -> None:
        self._hash, self.received = await self._disk.do(self._read_what_is_there)
        self.accepted = self.received

    def take_chunk(self, frame: MediaFrame) -> None:
        """Add the bytes of a frame that the peer's credit allowed."""
        self.take(frame.payload)

    def take(self, payload: bytes) -> None:
        """Add bytes that the peer's credit allowed."""
        self._buffer += payload
        self.accepted += len(payload)
        if self.listener is not None:
            self.listener.take(payload)
        self._changed.set()

    def finish(self) -> None:
        """Say that all bytes were sent."""
        self._is_finished = True
        self._changed.set()

    def give_up(self) -> None:
        """Say that no more bytes come, ever."""
        self._is_given_up = True
        self._changed.set()

    def hand_over(self) -> None:
        """Let another process go on with it, from what is on the disk."""
        self._is_handed_over = True
        self._changed.set()

    async def receive_all(self, idle_s: float) -> str:
        """Write what comes and return the SHA-256 at the end; raises `Refused`.

        An upload that nobody sends for `idle_s` is abandoned. A microphone may be silent for as
        long as it is connected, and ends when it does not come back.
        """
        while not (self._is_finished and not self._buffer):
            if self._is_given_up:
                raise Refused(ErrorCode.UPLOAD_ABANDONED, "the upload was given up")
            if self._is_handed_over:
                text = "another process goes on with it"
                raise Refused(ErrorCode.REPLACED, text, is_final=False)
            if self._buffer:
                await self._write()
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout(idle_s):
                    await self._changed.wait()
            except TimeoutError:
                if self.claim.is_live:
                    self._is_finished = self.peer is None
                    continue
                message = f"nothing came for {idle_s:.0f} s"
                raise Refused(ErrorCode.UPLOAD_ABANDONED, message) from None
        return self._check()

    async def _write(self) -> None:
        piece, self._buffer = bytes(self._buffer), bytearray()
        claimed = self.claim.size
        if claimed is not None and self.received + len(piece) > claimed:
            raise Refused(ErrorCode.SIZE_MISMATCH, f"more than the {claimed} bytes announced")
        if self.received + len(piece) > self._max_bytes:
            raise Refused(ErrorCode.MEDIA_TOO_BIG, f"more than {self._max_bytes} bytes")
        try:
            await self._disk.do(lambda: self._append(piece))
        except OSError as error:
            message = f"the disk does not take it: {error.strerror}"
            raise Refused(ErrorCode.UNAVAILABLE, message, is_final=False) from error
        self.received += len(piece)
        if self.peer is not None:
            self.peer.granted(self.received, len(piece))

    def _check(self) -> str:
        claim = self.claim
        if claim.size is not None and self.received != claim.size:
            message = f"{self.received} bytes instead of {claim.size}"
            raise Refused(ErrorCode.SIZE_MISMATCH, message)
        digest = self._hash.hexdigest()
        if claim.sha256 is not None and digest != claim.sha256:
            raise Refused(ErrorCode.HASH_MISMATCH, "the bytes have another SHA-256")
        return digest

    def _append(self, piece: bytes) -> None:
        # At its own place rather than at the end: a write that failed half-way is written over.
        with open(self.path, "r+b") as file:
            file.seek(self.received)
            file.write(piece)
            file.truncate()
        self._hash.update(piece)

    def _read_what_is_there(self) -> tuple[hashlib._Hash, int]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        digest, size = hashlib.sha256(), 0
        with open(self.path, "rb") as file:
            while piece := file.read(_READ_BYTES):
                digest.update(piece)
                size += len(piece)
        claim_path(self.path).write_bytes(msgspec.json.encode(self.claim))
        return digest, size


def forget(path: Path) -> None:
    """Delete an upload's bytes and its claim."""
    path.unlink(missing_ok=True)
    claim_path(path).unlink(missing_ok=True)


def claim_path(path: Path) -> Path:
    """Where the claim of an upload lies, beside its bytes."""
    return path.with_name(path.name + ".json")
