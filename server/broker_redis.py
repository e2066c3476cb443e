"""The broker over Redis: one connection that listens to all rooms of this process.

The bus carries `e` and a frame (an event), `g` (an event too long for it: read the log), and `n`
with a node's name and a note.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import structlog
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from server.background import Background, end
from server.broker import MAX_PAYLOAD_BYTES, Ears
from server.redis_link import RedisLink, channel

log = structlog.get_logger(__name__)

BEAT_S = 1.0
SILENT_S = 5.0
RETRY_S = 0.25
MAX_NOTES = 2_000
NODE_LENGTH = 16


class RedisBroker:
    """A `Broker`; `start` once. `node` is this process's name on the bus, 16 characters.

    The listening connection hears a beat of its own each second, through the bus itself: nothing
    for `silent_s` means that the bus is down, whatever the socket says.
    """

    def __init__(
        self,
        link: RedisLink,
        node: str,
        background: Background,
        *,
        beat_s: float = BEAT_S,
        silent_s: float = SILENT_S,
    ) -> None:
        assert len(node) == NODE_LENGTH, "the name's length is part of the format"
        self.is_up = False
        self.notes_dropped = 0
        self._link = link
        self._node = node.encode()
        self._background = background
        self._beat_s = beat_s
        self._silent_s = silent_s
        self._beat_channel = f"consilium:beat:{node}"
        self._ears: dict[str, Ears] = {}
        self._rooms: dict[bytes, str] = {}
        self._confirmed: dict[bytes, asyncio.Event] = {}
        self._pubsub: PubSub | None = None
        self._notes: deque[tuple[str, bytes]] = deque()
        self._has_notes = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to listen."""
        work = (
            self._listen_until_cancelled,
            self._beat_until_cancelled,
            self._tell_until_cancelled,
        )
        self._tasks = [self._background.spawn(each(), f"bus: {each.__name__}") for each in work]

    async def subscribe(self, room: str, ears: Ears) -> None:
        """See `Broker.subscribe`; while the bus is down, `gap` comes when it is up again."""
        name = channel(room).encode()
        self._ears[room], self._rooms[name] = ears, room
        if self._pubsub is None:
            return
        confirmed = self._confirmed.setdefault(name, asyncio.Event())
        try:
            async with asyncio.timeout(self._silent_s):
                await self._pubsub.subscribe(name)
                await confirmed.wait()
        except (RedisError, OSError, TimeoutError):
            # The listening task finds out by itself, and subscribes to everything again.
            return

    async def unsubscribe(self, room: str) -> None:
        """See `Broker.unsubscribe`."""
        name = channel(room).encode()
        self._ears.pop(room, None)
        self._rooms.pop(name, None)
        self._confirmed.pop(name, None)
        if self._pubsub is not None:
            try:
                await self._pubsub.unsubscribe(name)
            except (RedisError, OSError):
                return

    def tell(self, room: str, note: bytes) -> None:
        """See `Broker.tell`; of too many that wait the oldest is dropped."""
        if len(note) > MAX_PAYLOAD_BYTES - NODE_LENGTH - 1:
            self.notes_dropped += 1
            return
        if len(self._notes) >= MAX_NOTES:
            self._notes.popleft()
            self.notes_dropped += 1
        self._notes.append((channel(room), b"n" + self._node + note))
        self._has_notes.set()

    async def close(self) -> None:
        """See `Broker.close`."""
        await end(*self._tasks)
        self._ears.clear()

    # -- listening ------------------------------------------------------------------------------

    async def _listen_until_cancelled(self) -> None:
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, TimeoutError) as error:
                log.warning("bus down", error=str(error) or type(error).__name__)
            finally:
                self.is_up, self._pubsub = False, None
            await asyncio.sleep(RETRY_S)

    async def _listen(self) -> None:
        """Listen until the connection is lost or silent."""
        async with self._link.subscriber() as redis, redis.pubsub() as pubsub:
            for confirmed in self._confirmed.values():
                confirmed.clear()
            async with asyncio.timeout(self._silent_s):
                await self._link.learn_durability()
                await pubsub.subscribe(self._beat_channel)
                # Set before the rooms are read: one that comes meanwhile subscribes by itself.
                self._pubsub = pubsub
                if self._rooms:
                    await pubsub.subscribe(*self._rooms)
            while True:
                async with asyncio.timeout(self._silent_s):
                    message = await pubsub.get_message(timeout=None)
                if message is not None:
                    self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        room = self._rooms.get(message["channel"])
        if message["type"] == "subscribe":
            if room is None:
                self.is_up = message["channel"] == self._beat_channel.encode() or self.is_up
                return
            self._confirmed.setdefault(message["channel"], asyncio.Event()).set()
            # Also at the first time: between asking and hearing something may have been said.
            self._ears[room].gap()
        elif message["type"] == "message" and room is not None:
            self._hear(self._ears[room], message["data"])

    def _hear(self, ears: Ears, payload: bytes) -> None:
        match payload[:1]:
            case b"e":
                ears.event(payload[1:])
            case b"g":
                ears.gap()
            case b"n":
                node, note = payload[1 : NODE_LENGTH + 1], payload[NODE_LENGTH + 1 :]
                if node != self._node:
                    ears.note(node.decode(), note)

    # -- speaking -------------------------------------------------------------------------------

    async def _beat_until_cancelled(self) -> None:
        while True:
            try:
                await self._link.client.publish(self._beat_channel, b"")
            except (RedisError, OSError, TimeoutError):
                # The listening side says it, when nothing comes for too long.
                pass
            await asyncio.sleep(self._beat_s)

    async def _tell_until_cancelled(self) -> None:
        while True:
            await self._has_notes.wait()
            self._has_notes.clear()
            notes, self._notes = self._notes, deque()
            try:
                async with self._link.client.pipeline(transaction=False) as pipe:
                    for name, payload in notes:
                        pipe.publish(name, payload)
                    await pipe.execute()
            except (RedisError, OSError, TimeoutError):
                self.notes_dropped += len(notes)
