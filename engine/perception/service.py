"""Perception as the engine uses it: media in, observations out, one terminal for every item."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from engine.api import (
    Completed,
    Detected,
    EngineCode,
    EngineError,
    Keyframe,
    LabRow,
    LevelReady,
    Media,
    MediaFailed,
    Observation,
    Progress,
    Speech,
    Stats,
    Stills,
    TextRow,
)
from engine.perception.config import PerceptionConfig
from engine.perception.listening import Ears, Listening, first_bytes
from engine.perception.pool import WorkerPool
from engine.perception.sound import is_container, is_live, raw_format, sound_type
from engine.perception.spool import Spool
from engine.perception.standstill import StandStill
from engine.perception.watching import Mailbox, Watching
from engine.perception.wire import (
    PIXELS_NAME,
    SAMPLES_NAME,
    UNFINISHED_SUFFIX,
    Answer,
    Chunk,
    Decode,
    End,
    Pixels,
    PixelsReady,
    Read,
)

# A reader finds at most 1,000 pieces (`ocr.MAX_PIECES`) and each gives at most three observations,
# so a look that nobody reads holds all it has seen of a picture, or all keyframes of a video and
# the rows of the first ones: no further keyframe is read above `_FEW_UNREAD`.
_MAX_UNREAD = 8192
_FEW_UNREAD = 2048

_log = logging.getLogger(__name__)


class _Look:
    """One open media item."""

    def __init__(self, media: Media) -> None:
        self.media = media
        self.observations: asyncio.Queue[Observation] = asyncio.Queue(_MAX_UNREAD)
        self.was_read = asyncio.Event()
        self.spool: Spool | None = None
        # Of a microphone: what is fed is listened to as it comes.
        self.ears: Ears | None = None
        # Of a camera: the newest still that was fed.
        self.stills: Mailbox | None = None
        self.timings: dict[str, float] = {}
        self.began = time.perf_counter()
        self.task: asyncio.Task[None] | None = None

    async def room(self) -> None:
        """Wait until few of the observations are unread."""
        while self.observations.qsize() > _FEW_UNREAD:
            self.was_read.clear()
            await self.was_read.wait()

    def passed(self, name: str) -> None:
        """Note when something happened first, in seconds since the item was opened."""
        self.timings.setdefault(name, time.perf_counter() - self.began)


class Perception:
    """Looks at media in worker processes.

    `start` before anything else, `stop` at the end; both on the loop that uses it. Levels of one
    item are made while the text of another is read, so a new upload never waits for a reader.
    """

    def __init__(self, config: PerceptionConfig) -> None:
        self._config = config
        self._decoders = WorkerPool("decode", config.decode_workers, config)
        # One reader: it already uses all the threads it was given.
        self._readers = WorkerPool("read", 1, config)
        self._listening = Listening(config)
        self._watching = Watching(config, self._decoders)
        self._still = StandStill(lambda: self._readers.workers)
        self._here: asyncio.AbstractEventLoop | None = None
        self._looks: dict[str, _Look] = {}
        self._counters: Counter[str] = Counter()

    async def start(self) -> None:
        """Start the workers."""
        self._here = asyncio.get_running_loop()
        await self._decoders.start()
        await self._readers.start()

    async def stop(self) -> None:
        """End every look with `decoder_lost` and every worker."""
        tasks = [look.task for look in self._looks.values() if look.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._still.want(False)
        await self._decoders.stop()
        await self._readers.stop()
        await self._listening.stop()

    def open(self, media: Media) -> AsyncIterator[Observation]:
        """Begin to look at once, whether or not anybody iterates yet.

        Yields exactly one `Completed` or `MediaFailed`, last; an item beyond `max_open` yields
        only `MediaFailed` with `overloaded`. Closing the iterator early ends the look.
        `Completed.timings` has `first_level`, `first_text`, `first_lab_row` and `total` since this
        call, the others since a worker took the item. Raises `ValueError` when an item with this
        id is open.
        """
        if media.id in self._looks:
            raise ValueError("a media item with this id is open")
        look = _Look(media)
        if len(self._looks) >= self._config.max_open:
            self._counters["media_failed"] += 1
            look.observations.put_nowait(
                MediaFailed(
                    media=media.id,
                    code=EngineCode.OVERLOADED,
                    message="Too many items are being looked at; try again soon.",
                )
            )
            return self._observations(look)
        if media.path is None and media.is_camera:
            look.stills = Mailbox(self._config.max_still_bytes)
        elif media.path is None and is_live(media.declared_type):
            look.ears = Ears()
        elif media.path is None:
            look.spool = Spool(media.derived_dir, self._config.max_bytes)
        self._looks[media.id] = look
        look.task = asyncio.get_running_loop().create_task(self._steps(look))
        look.task.add_done_callback(partial(self._end, look))
        self._counters["media_opened"] += 1
        return self._observations(look)

    async def feed(self, media: str, chunk: bytes, pts_us: int) -> None:
        """Add bytes to an item without a path; the place of sound is its count of samples.

        Waits while a microphone's decoder has enough. Of a camera `chunk` is a whole still, taken
        at `pts_us`. Bytes for an item that is not open (any more) are dropped and counted: its
        terminal observation has already said why.
        """
        look = self._looks.get(media)
        if look is not None and look.stills is not None:
            look.stills.put(chunk, pts_us)
        elif look is not None and look.ears is not None:
            await look.ears.write(Chunk(data=chunk))
        elif look is not None and look.spool is not None:
            await look.spool.write(chunk)
        else:
            self._counters["bytes_dropped"] += len(chunk)

    async def close(self, media: str) -> None:
        """Say that no more bytes come."""
        look = self._looks.get(media)
        if look is not None and look.stills is not None:
            look.stills.end()
        elif look is not None and look.ears is not None:
            await look.ears.write(End())
        elif look is not None and look.spool is not None:
            await look.spool.end()

    def is_reading(self) -> bool:
        """Whether text or speech is being recognised now; may be asked from any thread."""
        return self._readers.is_at_work or self._listening.recognisers.is_at_work

    def stand_still(self, is_wanted: bool) -> None:
        """Let the reading of text stand still for a moment, or go on; from any thread."""
        # A loop that was closed has no reader any more.
        with contextlib.suppress(RuntimeError):
            if self._here is not None:
                self._here.call_soon_threadsafe(self._still.want, is_wanted)

    def stats(self) -> Stats:
        """Return counters since the start and the state of the workers.

        `decoder_worker_pid_N`, `ocr_worker_pid_N` and `speech_worker_pid_N` are process ids, 0
        while none runs.
        """
        gauges = {
            "media_open": float(len(self._looks)),
            "media_heard": float(self._listening.hearing),
        }
        pools = (
            ("decoder", self._decoders),
            ("ocr", self._readers),
            ("speech", self._listening.recognisers),
        )
        for name, pool in pools:
            for index, worker in enumerate(pool.workers):
                gauges[f"{name}_worker_pid_{index}"] = float(worker.pid or 0)
        starts = {
            f"{name}_worker_starts": float(sum(worker.starts for worker in pool.workers))
            for name, pool in pools
        }
        counters = {name: float(count) for name, count in self._counters.items()}
        return Stats(gauges=gauges, counters=counters | starts)

    async def _observations(self, look: _Look) -> AsyncIterator[Observation]:
        try:
            while True:
                observation = await look.observations.get()
                look.was_read.set()
                yield observation
                if isinstance(observation, Completed | MediaFailed):
                    return
        finally:
            if look.task is not None and not look.task.done():
                look.task.cancel()

    def _end(self, look: _Look, task: asyncio.Task[None]) -> None:
        """Give the look its terminal observation, also when its task never took a step."""
        media = look.media.id
        terminal: Observation
        if (failure := _failure(task)) is None:
            look.passed("total")
            terminal = Completed(media=media, timings=look.timings)
            self._counters["media_completed"] += 1
        else:
            terminal = MediaFailed(media=media, code=failure.code, message=failure.message)
            self._counters["media_failed"] += 1
        del self._looks[media]
        _sweep(look)
        look.observations.put_nowait(terminal)

    async def _steps(self, look: _Look) -> None:
        """Decode, and read the text while the bigger levels are still made."""
        path, publish = look.media.path, partial(self._publish, look)
        read = partial(self._read, look)
        if look.stills is not None:
            await self._watching.watch_camera(look.media, look.stills, publish, read, look.room)
            return
        if look.ears is not None:
            await self._listening.listen(look.media, None, look.ears, publish)
            return
        if look.spool is not None:
            path = await look.spool.complete(self._config.feed_idle_s)
        assert path is not None, "an item without a path has a spool"
        is_raw = raw_format(look.media.declared_type) is not None
        head = b"" if is_raw else await asyncio.to_thread(first_bytes, path)
        if is_container(head) and await self._watching.watch_film(
            look.media, path, publish, read, partial(self._hear_track, look, path), look.room
        ):
            return
        if is_raw or sound_type(head) is not None:
            await self._listening.listen(look.media, path, Ears(), publish)
            return
        await self._look(look, path)

    async def _hear_track(self, look: _Look, path: str) -> None:
        """Listen to the sound of a video, whose kind is known already."""

        def publish(answer: Answer) -> None:
            if not isinstance(answer, Detected):
                self._publish(look, answer)

        try:
            await self._listening.listen(look.media, path, Ears(), publish, is_track=True)
        except EngineError:
            self._counters["tracks_unheard"] += 1
            raise

    async def _look(self, look: _Look, path: str) -> None:
        request = Decode(
            media=look.media.id,
            path=path,
            derived_dir=look.media.derived_dir,
            declared_type=look.media.declared_type,
            max_bytes=self._config.max_bytes,
            max_pixels=self._config.max_pixels,
            max_ratio=self._config.max_ratio,
            max_series_pixels=self._config.max_series_pixels,
            cpu_s=_cpu_s(self._config.decode_s),
        )
        async with asyncio.TaskGroup() as both:

            def take(answer: Answer) -> None:
                if isinstance(answer, PixelsReady):
                    both.create_task(self._read(look, answer.pixels))
                else:
                    self._publish(look, answer)

            async with self._decoders.lend() as worker:
                look.timings |= (await worker.ask(request, self._config.decode_s, take)).timings

    async def _read(self, look: _Look, pixels: Pixels | Keyframe) -> None:
        request = Read(media=look.media.id, pixels=pixels, cpu_s=_cpu_s(self._config.read_s))

        def take(answer: Answer) -> None:
            # How far one keyframe is read says nothing of the video.
            if isinstance(pixels, Pixels) or not isinstance(answer, Progress):
                self._publish(look, answer)

        async with self._readers.lend() as worker:
            finished = await worker.ask(request, self._config.read_s, take)
        look.timings |= finished.timings

    def _publish(self, look: _Look, answer: Answer | Stills) -> None:
        match answer:
            case Detected() | Progress() | Stills():
                pass
            case Keyframe():
                self._counters["keyframes"] += 1
                look.passed("first_keyframe")
            case LevelReady():
                self._counters["levels"] += 1
                look.passed("first_level")
            case TextRow():
                self._counters["text_rows"] += 1
                look.passed("first_text")
            case LabRow():
                self._counters["lab_rows"] += 1
                look.passed("first_lab_row")
            case Speech():
                self._counters["utterances"] += 1
                look.passed("first_speech")
            case _:
                raise AssertionError(f"a worker never sends {type(answer).__name__} here")
        look.observations.put_nowait(answer)


def _cpu_s(wall_s: float) -> int:
    """Two threads burn two seconds in one; one more so that the wall clock is always first."""
    return 2 * math.ceil(wall_s) + 1


def _failure(task: asyncio.Task[None]) -> EngineError | None:
    """Return why a finished look failed; of several faults the first, which caused the others."""
    if task.cancelled():
        return EngineError(EngineCode.DECODER_LOST, "Looking at this item was ended.")
    fault = task.exception()
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    if fault is None or isinstance(fault, EngineError):
        return fault
    # A full disk, a path that was taken away, or a mistake of ours: the operator learns which.
    _log.error("a look failed: %s", type(fault).__name__, exc_info=fault)
    return EngineError(EngineCode.INTERNAL, "The item could not be looked at.")


def _sweep(look: _Look) -> None:
    """Remove what is only of use while the look lasts, also after a worker was killed."""
    if look.spool is not None:
        look.spool.discard()
    if look.ears is not None:
        look.ears.stop()
    folder = Path(look.media.derived_dir)
    for path in (
        folder / PIXELS_NAME,
        folder / SAMPLES_NAME,
        *folder.rglob(f".*{UNFINISHED_SUFFIX}"),
    ):
        path.unlink(missing_ok=True)
