"""Recordings and microphones: a decoder for each, one recogniser for all of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engine.api import EngineCode, EngineError, Media, Speech
from engine.perception.config import PerceptionConfig
from engine.perception.pool import WorkerPool, WorkerProcess
from engine.perception.sound import RATE
from engine.perception.wire import Answer, Chunk, End, Hear, Heard, Listen, Listened

Publish = Callable[[Answer], None]

# Items take turns at the recogniser, and none holds it for longer than this much sound.
_MAX_PIECE = 10 * RATE
# The recogniser is asked once for what came meanwhile, not once for each 20 ms.
_MIN_PIECE = RATE // 4
# What one chunk of a microphone may cost its decoder.
_CHUNK_CPU_S = 30


def first_bytes(path: str) -> bytes:
    """Return enough of a file to tell a recording or video from a picture."""
    with open(path, "rb") as file:
        return file.read(16)


class Ears:
    """What is fed to one microphone until its decoder takes it."""

    def __init__(self) -> None:
        self._decoder: WorkerProcess | None = None
        self._is_ready = asyncio.Event()
        self._writing = asyncio.Lock()

    def use(self, decoder: WorkerProcess) -> None:
        """Hand everything to this decoder from now on."""
        self._decoder = decoder
        self._is_ready.set()

    async def write(self, sent: Chunk | End) -> None:
        """Hand on in order; waits while the decoder has enough. A lost one takes nothing."""
        async with self._writing:
            await self._is_ready.wait()
            if self._decoder is not None:
                with suppress(ConnectionError):
                    await self._decoder.send(sent)

    def stop(self) -> None:
        """Let whoever writes go: nothing takes it any more."""
        self._decoder = None
        self._is_ready.set()


class Listening:
    """Listens to media in worker processes; each item is heard and written down at once."""

    def __init__(self, config: PerceptionConfig) -> None:
        self._config = config
        # Started with the first item: its weights and libraries take 240 MB.
        self.recognisers = WorkerPool("listen", 1, config)
        self.hearing = 0
        self._asking: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """End the recogniser; decoders end with their items."""
        for asking in list(self._asking):
            asking.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        await self.recognisers.stop()

    async def listen(
        self,
        media: Media,
        path: str | None,
        ears: Ears,
        publish: Publish,
        *,
        is_track: bool = False,
    ) -> None:
        """Publish what is heard, to the end; raises `EngineError`.

        `path` None means that the bytes come through `ears`; `is_track`, that moving pictures
        beside the sound are no mistake.
        """
        if not (Path(self._config.speech_model) / "model.bin").is_file():
            raise EngineError(
                EngineCode.MEDIA_UNSUPPORTED,
                "There is no model for speech here: run `consilium models pull`.",
            )
        if self.hearing >= self._config.max_hearing:
            raise EngineError(
                EngineCode.OVERLOADED, "Too many recordings are being listened to; try again soon."
            )
        self.hearing += 1
        try:
            track = _Track(media, publish)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._hear(media, path, ears, track, is_track))
                both.create_task(self._write_down(track))
        finally:
            self.hearing -= 1

    async def _hear(
        self, media: Media, path: str | None, ears: Ears, track: _Track, is_track: bool
    ) -> None:
        config, is_fed = self._config, path is None
        # Two threads burn two seconds in one.
        cpu_s = _CHUNK_CPU_S if is_fed else 2 * math.ceil(config.hear_s) + 1
        request = Hear(
            media=media.id,
            path=path,
            derived_dir=media.derived_dir,
            declared_type=media.declared_type,
            max_bytes=config.max_bytes,
            max_sound_s=config.max_sound_s,
            cpu_s=cpu_s,
            is_track=is_track,
        )
        decoder = WorkerProcess("hear", config)
        try:
            # People may be silent for as long as they like.
            limit_s = None if is_fed else config.hear_s
            await decoder.ask(request, limit_s, track.take, lambda: ears.use(decoder))
        finally:
            ears.stop()
            await decoder.kill()
            track.end()

    async def _write_down(self, track: _Track) -> None:
        while await track.has_more():
            try:
                await self._listen_once(track)
            except EngineError as lost:
                if lost.code is not EngineCode.DECODER_LOST:
                    raise
                # Not this item's fault, or not known to be: once more, by a fresh recogniser.
                await self._listen_once(track)

    async def _listen_once(self, track: _Track) -> None:
        stop = min(track.count, track.position + _MAX_PIECE)
        request = Listen(
            media=track.media,
            samples=track.samples,
            settled=track.settled,
            start=track.position,
            stop=stop,
            utterances=track.utterances,
            is_last=track.is_ended and stop == track.count,
            cpu_s=2 * math.ceil(self._config.listen_s) + 1,
        )
        asking = asyncio.create_task(self._ask(request, track))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        # An item that is given up must not take the recogniser of all others with it.
        await asyncio.shield(asking)
        track.is_done = request.is_last

    async def _ask(self, request: Listen, track: _Track) -> None:
        async with self.recognisers.lend() as recogniser:
            await recogniser.ask(request, self._config.listen_s, track.take)


class _Track:
    """How far one item was heard and written down; positions are samples."""

    def __init__(self, media: Media, publish: Publish) -> None:
        self.media = media.id
        self.samples = ""
        self.count = 0
        self.position = 0
        self.settled = 0
        self.utterances = 0
        self.is_ended = False
        self.is_done = False
        self._publish = publish
        self._changed = asyncio.Event()

    def take(self, answer: Answer) -> None:
        """Keep what a worker says of its progress, publish the rest."""
        match answer:
            case Heard():
                self.samples, self.count = answer.samples, answer.count
                self._changed.set()
            case Listened():
                self.position, self.settled = answer.position, answer.settled
            case Speech():
                self.utterances += 1
                # Written down: a recogniser lost right behind it must not write it again.
                self.settled = max(self.settled, round(answer.end_s * RATE))
                self._publish(answer)
            case _:
                self._publish(answer)

    def end(self) -> None:
        """Nothing more is heard."""
        self.is_ended = True
        self._changed.set()

    async def has_more(self) -> bool:
        """Wait until it is worth asking the recogniser; False when all is written down."""
        while not self.is_ended and self.count - self.position < _MIN_PIECE:
            self._changed.clear()
            await self._changed.wait()
        return not self.is_done and self.count > 0
