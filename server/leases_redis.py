"""Leases in Redis: a key each, which ends by itself unless its owner renews it."""

from __future__ import annotations

import asyncio

import structlog

from server.background import Background, end
from server.log import LogUnavailable
from server.redis_link import RedisLink, faults, key

log = structlog.get_logger(__name__)

_TAKE = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_LET_GO = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""


class RedisLeases:
    """`Leases` that several processes share; `start` once."""

    is_shared = True

    def __init__(
        self, link: RedisLink, node: str, background: Background, length_s: float = 10.0
    ) -> None:
        self.length_s = length_s
        self._redis = link.client
        self._node = node
        self._background = background
        self._take = self._redis.register_script(_TAKE)
        self._let_go = self._redis.register_script(_LET_GO)
        self._mine: set[tuple[str, str]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to renew what is taken."""
        self._task = self._background.spawn(self._renew_until_cancelled(), "leases")

    async def take(self, room: str, name: str) -> bool:
        """See `Leases.take`."""
        with faults():
            is_mine = bool(await self._take(keys=[_key(room, name)], args=self._arguments))
        if is_mine:
            self._mine.add((room, name))
        return is_mine

    async def let_go(self, room: str, name: str) -> None:
        """See `Leases.let_go`; one that cannot be given back now ends by itself."""
        self._mine.discard((room, name))
        try:
            with faults():
                await self._let_go(keys=[_key(room, name)], args=[self._node])
        except LogUnavailable:
            log.warning("lease ends by itself", room=room, lease=name)

    async def is_taken(self, room: str, name: str) -> bool:
        """See `Leases.is_taken`."""
        with faults():
            return bool(await self._redis.exists(_key(room, name)))

    async def close(self) -> None:
        """See `Leases.close`."""
        if self._task is not None:
            await end(self._task)
        await asyncio.gather(*(self.let_go(*each) for each in list(self._mine)))

    @property
    def _arguments(self) -> list[str | int]:
        return [self._node, int(self.length_s * 1000)]

    async def _renew_until_cancelled(self) -> None:
        while True:
            await asyncio.sleep(self.length_s / 4)
            for room, name in list(self._mine):
                try:
                    with faults():
                        await self._take(keys=[_key(room, name)], args=self._arguments)
                except LogUnavailable:
                    # Tried again soon; the lease has some lives left.
                    break


def _key(room: str, name: str) -> str:
    return key(room, f"lease:{name}")
