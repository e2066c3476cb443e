"""Videos and cameras: keyframes as they are decoded, each read through the path of pictures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.api import Detected, EngineCode, EngineError, Keyframe, Media, Progress, Stills
from engine.perception.config import PerceptionConfig
from engine.perception.pool import WorkerPool, WorkerProcess
from engine.perception.wire import Answer, Film, Still, Tracks

Publish = Callable[[Answer | Stills], None]
ReadKeyframe = Callable[[Keyframe], Awaitable[None]]
HearTrack = Callable[[], Awaitable[None]]
# Waits while nobody has read what was published before.
HasRoom = Callable[[], Awaitable[None]]

_STILL_NAME = ".still.jpg"
# What one still may cost its decoder; it is a JPEG of a few megapixels.
_STILL_S = 10.0


@dataclass(frozen=True)
class _Waiting:
    """A still that came and was not looked at yet."""

    jpeg: bytes
    pts_us: int
    came: float


class Mailbox:
    """What a camera sends: the newest still, and how many it took the place of."""

    def __init__(self, max_bytes: int) -> None:
        self.dropped = 0
        self.refused = 0
        self.code: EngineCode | None = None
        self._max_bytes = max_bytes
        self._still: _Waiting | None = None
        self._is_ended = False
        self._changed = asyncio.Event()

    def put(self, jpeg: bytes, pts_us: int) -> None:
        """Take a whole still; one that waits is passed over."""
        if len(jpeg) > self._max_bytes:
            self.refuse(EngineCode.MEDIA_TOO_BIG)
            return
        self.dropped += self._still is not None
        self._still = _Waiting(jpeg, pts_us, time.monotonic())
        self._changed.set()

    def refuse(self, code: EngineCode) -> None:
        """Count a still that cannot be looked at."""
        self.refused += 1
        self.code = code

    def end(self) -> None:
        """No more stills come; the one that waits is still looked at."""
        self._is_ended = True
        self._changed.set()

    async def next(self) -> _Waiting | None:
        """Wait for the newest still; None at the end."""
        while self._still is None and not self._is_ended:
            self._changed.clear()
            await self._changed.wait()
        still, self._still = self._still, None
        return still


class Watching:
    """Decodes videos and cameras in workers; reading and listening are given by the owner."""

    def __init__(self, config: PerceptionConfig, decoders: WorkerPool) -> None:
        self._config = config
        self._decoders = decoders
        self._films = asyncio.Semaphore(config.max_films)

    async def watch_film(
        self,
        media: Media,
        path: str,
        publish: Publish,
        read: ReadKeyframe,
        hear: HearTrack,
        room: HasRoom,
    ) -> bool:
        """Watch a video to its end; False, and nothing published, when it has no pictures.

        Raises `EngineError`. Its sound is listened to at the same time; what fails of that does
        not fail the video.
        """
        config = self._config
        request = Film(
            media=media.id,
            path=path,
            derived_dir=media.derived_dir,
            declared_type=media.declared_type,
            max_bytes=config.max_bytes,
            max_pixels=config.max_pixels,
            max_film_s=config.max_film_s,
            cpu_s=2 * round(config.film_s) + 1,
        )
        found = Tracks(has_pictures=False, has_sound=False)
        # Of at most `MAX_KEYFRAMES`, so nothing here grows without a bound.
        unread: asyncio.Queue[Keyframe | None] = asyncio.Queue()
        async with self._films, asyncio.TaskGroup() as tasks:

            def take(answer: Answer) -> None:
                nonlocal found
                if isinstance(answer, Tracks):
                    found = answer
                    if found.has_pictures and found.has_sound:
                        tasks.create_task(_hear_if_possible(hear))
                    return
                publish(answer)
                if isinstance(answer, Keyframe) and answer.like is None:
                    unread.put_nowait(answer)

            reading = tasks.create_task(self._read_all(media, unread, publish, read, room))
            decoder = WorkerProcess("decode", config)
            try:
                await decoder.ask(request, config.film_s, take)
            finally:
                await decoder.kill()
                unread.put_nowait(None)
            await reading
        return found.has_pictures

    async def _read_all(
        self,
        media: Media,
        unread: asyncio.Queue[Keyframe | None],
        publish: Publish,
        read: ReadKeyframe,
        room: HasRoom,
    ) -> None:
        done = 0
        while (keyframe := await unread.get()) is not None:
            await room()
            await read(keyframe)
            done += 1
            waiting = unread.qsize()
            publish(Progress(media=media.id, stage="ocr", done=done, total=done + waiting))

    async def watch_camera(
        self, media: Media, stills: Mailbox, publish: Publish, read: ReadKeyframe, room: HasRoom
    ) -> None:
        """Look at the newest still again and again until the camera ends.

        A still that cannot be decoded is counted and costs nothing else.
        """
        camera = _Camera(media)
        while True:
            # Before the still is taken: one taken first would grow old while nobody reads.
            await room()
            if (still := await stills.next()) is None:
                return
            age_s = time.monotonic() - still.came
            try:
                keyframe = await self._look(camera, still)
            except EngineError as refusal:
                stills.refuse(refusal.code)
            else:
                stills.code = None
                if keyframe is not None:
                    if not camera.is_detected:
                        publish(camera.detected(keyframe))
                    publish(keyframe)
                    if keyframe.like is None:
                        await _read_if_possible(read, keyframe)
                camera.taken += 1
            publish(
                Stills(
                    media=media.id,
                    taken=camera.taken,
                    dropped=stills.dropped,
                    refused=stills.refused,
                    age_s=age_s,
                    code=stills.code,
                )
            )

    async def _look(self, camera: _Camera, still: _Waiting) -> Keyframe | None:
        path = Path(camera.media.derived_dir) / _STILL_NAME
        await asyncio.to_thread(_write, path, still.jpeg)
        made: list[Keyframe] = []

        def take(answer: Answer) -> None:
            if isinstance(answer, Keyframe):
                made.append(answer)

        request = Still(
            media=camera.media.id,
            path=str(path),
            derived_dir=camera.media.derived_dir,
            frame=camera.next_frame,
            pts_us=still.pts_us,
            last_read=camera.last_read,
            is_due=time.monotonic() - camera.told_at >= self._config.still_due_s,
            max_bytes=self._config.max_still_bytes,
            max_pixels=self._config.max_pixels,
            cpu_s=2 * round(_STILL_S) + 1,
        )
        async with self._decoders.lend() as worker:
            await worker.ask(request, _STILL_S, take)
        if not made:
            return None
        camera.told(made[0])
        return made[0]


class _Camera:
    """How far one camera has come."""

    def __init__(self, media: Media) -> None:
        self.media = media
        self.taken = 0
        self.next_frame = media.first_frame
        self.last_read: int | None = None
        self.told_at = 0.0
        self.is_detected = False

    def told(self, keyframe: Keyframe) -> None:
        self.next_frame += 1
        self.told_at = time.monotonic()
        if keyframe.like is None:
            self.last_read = keyframe.frame

    def detected(self, keyframe: Keyframe) -> Detected:
        self.is_detected = True
        return Detected(
            media=self.media.id,
            media_type="image/jpeg",
            width=keyframe.width,
            height=keyframe.height,
        )


async def _hear_if_possible(hear: HearTrack) -> None:
    with suppress(EngineError):
        await hear()


async def _read_if_possible(read: ReadKeyframe, keyframe: Keyframe) -> None:
    with suppress(EngineError):
        await read(keyframe)


def _write(path: Path, jpeg: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jpeg)
