"""Microphones: what comes is written down while it is stored, and may be asked at once."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

import structlog

from engine import api
from protocol.errors import ProtocolError
from protocol.events import AssetRead
from protocol.messages import Ask
from protocol.room import RoomState
from server import translate
from server.assets import Assets
from server.background import Background
from server.hub import Hosted, Hub
from server.looking import Looking
from server.proposals import Answer
from server.turns import Turns
from server.upload import Claim

log = structlog.get_logger(__name__)

# Forty seconds at 48 kHz: an engine further behind listens to the stored recording later.
MAX_WAITING_BYTES = 4 * 1024 * 1024
# Handed on at once; a frame to the engine may have 16 MiB.
MAX_FEED_BYTES = 64 * 1024
# With the roll around it; a shorter one is "hm" or a cough.
MIN_QUESTION_S = 0.9
MAX_QUESTION_CHARS = 4_000


class Hearing:
    """Begins to listen to microphones."""

    def __init__(
        self,
        engine: api.Engine,
        assets: Assets,
        hub: Hub,
        looking: Looking,
        turns: Turns,
        background: Background,
    ) -> None:
        self.engine = engine
        self.assets = assets
        self.hub = hub
        self.looking = looking
        self.turns = turns
        self.background = background

    def begin(self, claim: Claim) -> Microphone:
        """Listen to a recording that begins now."""
        microphone = Microphone(self, claim)
        self.background.spawn(microphone.run(), f"microphone {claim.asset}")
        return microphone


class Microphone:
    """One recording under way. Nothing is lost with the engine: the bytes are stored beside it."""

    def __init__(self, hearing: Hearing, claim: Claim) -> None:
        self._hearing = hearing
        self._claim = claim
        self._chunks: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._is_ended = False
        self._is_behind = False
        self._end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked: tuple[str, str] | None = None

    def take(self, chunk: bytes) -> None:
        """Listen to bytes too; never waits."""
        if self._waiting_bytes + len(chunk) > MAX_WAITING_BYTES:
            self._is_behind = True
        if not self._is_behind:
            self._chunks.append(chunk)
            self._waiting_bytes += len(chunk)
            self._changed.set()

    def committed(self) -> None:
        """All bytes came and are stored: write down what is left, then the asset is read."""
        self._finish(True)

    def abandon(self) -> None:
        """The recording is given up."""
        self._finish(False)

    def _finish(self, is_stored: bool) -> None:
        self._is_ended = True
        self._changed.set()
        if not self._end.done():
            self._end.set_result(is_stored)

    async def run(self) -> None:
        """Listen to the end; a recording that was not heard whole is heard again as a file."""
        claim, looking = self._claim, self._hearing.looking
        hosted = await self._hearing.hub.enter(claim.room)
        try:
            async with looking.alone(claim.room, claim.asset):
                is_whole = await self._hear(hosted)
            if not is_whole:
                looking.look(claim.room, claim.asset, claim.media_type)
        finally:
            self._hearing.hub.leave(hosted)

    async def _hear(self, hosted: Hosted) -> bool:
        """Listen until the recording is over; False when it has to be heard again."""
        listening = asyncio.create_task(self._listen(hosted))
        try:
            if not await self._end:
                return True
            end = await listening
            if end is None or self._is_behind:
                return False
            await self._conclude(hosted, end)
            return True
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _conclude(self, hosted: Hosted, end: api.Completed) -> None:
        asset = self._claim.asset
        await hosted.room.record(
            AssetRead(
                at=self._hearing.looking.now_ms(),
                actor=translate.MODEL,
                op_id=f"read:{asset}",
                asset=asset,
                timings=end.timings,
            )
        )

    async def _listen(self, hosted: Hosted) -> api.Completed | None:
        claim, assets = self._claim, self._hearing.assets
        media = api.Media(
            id=claim.asset,
            tenant=claim.room,
            path=None,
            name=claim.name,
            derived_dir=str(assets.work_folder(claim.asset)),
            declared_type=claim.media_type,
        )
        observations = self._hearing.engine.open(media)
        feeding = asyncio.create_task(self._feed())
        try:
            return await self._hearing.looking.follow(
                hosted, claim.asset, observations, lambda said: self._said(hosted, said)
            )
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _feed(self) -> None:
        """Hand the bytes to the engine in their order; its loss is told by its observations."""
        engine, asset = self._hearing.engine, self._claim.asset
        with suppress(api.EngineError):
            while True:
                if self._chunks:
                    await engine.feed(asset, self._next(), 0)
                elif self._is_ended:
                    await engine.close(asset)
                    return
                else:
                    self._changed.clear()
                    await self._changed.wait()

    def _next(self) -> bytes:
        parts: list[bytes] = [self._chunks.popleft()]
        size = len(parts[0])
        while self._chunks and size + len(self._chunks[0]) <= MAX_FEED_BYTES:
            parts.append(self._chunks.popleft())
            size += len(parts[-1])
        self._waiting_bytes -= size
        return b"".join(parts)

    # -- voice mode -----------------------------------------------------------------------------

    async def _said(self, hosted: Hosted, said: list[api.Speech]) -> None:
        for utterance in said if self._claim.asks else ():
            if utterance.final and utterance.end_s - utterance.start_s >= MIN_QUESTION_S:
                await self._ask(hosted, utterance)

    async def _ask(self, hosted: Hosted, utterance: api.Speech) -> None:
        """Ask what was said; who went on speaking before an answer began has asked one thing."""
        text, pending = utterance.text, await self._pending(hosted)
        if pending is not None:
            text = f"{pending[1]} {text}"
        # Made from the utterance: however often it is heard, it is asked once.
        turn = f"voice.{utterance.id}"
        ask = Ask(
            turn=turn,
            text=text[-MAX_QUESTION_CHARS:],
            interrupts=pending[0] if pending is not None else None,
        )
        self._asked = (turn, text)
        self._hearing.turns.ask(hosted, self._claim.by, ask, self._answered)

    async def _pending(self, hosted: Hosted) -> tuple[str, str] | None:
        asked = self._asked

        def is_pending(state: RoomState) -> bool:
            turn = state.turns.get(asked[0]) if asked is not None else None
            return turn is not None and turn.status == "running" and not turn.text

        return asked if await hosted.room.between(is_pending) else None

    def _answered(self, answer: Answer) -> None:
        if isinstance(answer, ProtocolError):
            log.warning("a spoken question was not taken", code=answer.code.value)
