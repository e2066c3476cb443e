"""The room log in Redis, for any number of server processes: one script per append.

consilium:{room}:head      hash     epoch, seq
consilium:{room}:events    stream   seq-0 -> batch, frame
consilium:{room}:acts      hash     participant NUL op_id -> seq
consilium:{room}:snapshot  hash     epoch, seq, state
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from protocol import codec
from protocol.state import Snapshot
from server.broker import MAX_PAYLOAD_BYTES
from server.log import Act, Appended, Draft, Gap, Head, History, LogUnavailable, Overtaken
from server.redis_link import RedisLink, channel, faults, key

log = structlog.get_logger(__name__)

FIRST_RETRY_S = 0.05
LONGEST_RETRY_S = 1.0
MAX_TRIES = 64
_CHUNK = 256

# Everything is checked before the first write, so that a refusal leaves nothing behind. The same
# append sent twice, because the answer to the first was lost, is recognised by its batch.
# What is longer than a bus message may be is only announced.
_APPEND = """
local epoch, seq, batch = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local head = redis.call('HMGET', KEYS[1], 'epoch', 'seq')
if head[1] ~= epoch or tonumber(head[2]) ~= seq then
  local id = string.format('%.0f-0', seq + 1)
  local first = redis.call('XRANGE', KEYS[2], id, id)
  if first[1] and first[1][2][2] == batch then return 'done' end
  return 'moved'
end
for i = 6, #ARGV, 2 do
  if ARGV[i] ~= '' and redis.call('HEXISTS', KEYS[3], ARGV[i]) == 1 then return 'seen' end
end
for i = 6, #ARGV, 2 do
  local act, frame = ARGV[i], ARGV[i + 1]
  seq = seq + 1
  redis.call('XADD', KEYS[2], string.format('%.0f-0', seq), 'b', batch, 'f', frame)
  if act ~= '' then redis.call('HSET', KEYS[3], act, string.format('%.0f', seq)) end
  if #frame < tonumber(ARGV[5]) then
    redis.call('PUBLISH', ARGV[4], 'e' .. frame)
  else
    redis.call('PUBLISH', ARGV[4], 'g')
  end
end
redis.call('HSET', KEYS[1], 'seq', string.format('%.0f', seq))
redis.call('PERSIST', KEYS[1])
return 'done'
"""

# A room that was only looked into, however many there are, leaves nothing for long.
_HEAD = """
redis.call('HSETNX', KEYS[1], 'epoch', ARGV[1])
redis.call('HSETNX', KEYS[1], 'seq', '0')
local head = redis.call('HMGET', KEYS[1], 'epoch', 'seq')
if head[2] == '0' then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
return head
"""
_EMPTY_ROOM_S = 7 * 24 * 3600


class RedisLog:
    """A `Log` that several processes share."""

    is_shared = True

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._redis = link.client
        self._script = self._redis.register_script(_APPEND)
        self._head_script = self._redis.register_script(_HEAD)
        # This process's appends to a room do not race each other.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._is_closed = False

    async def head(self, room: str) -> Head:
        """See `Log.head`."""
        self._check_open()
        with faults():
            epoch, seq = await self._head_script(
                keys=[key(room, "head")], args=[secrets.token_hex(8), _EMPTY_ROOM_S]
            )
        return Head(epoch.decode(), int(seq))

    async def append(
        self, room: str, drafts: Sequence[Draft], after: Head | None = None
    ) -> list[Appended]:
        """See `Log.append`."""
        self._check_open()
        async with self._locks.setdefault(room, asyncio.Lock()):
            return await self._append(room, drafts, after)

    async def _append(
        self, room: str, drafts: Sequence[Draft], after: Head | None
    ) -> list[Appended]:
        named = [_act(draft) for draft in drafts]
        seen: dict[Act, Appended] = {}
        for _ in range(MAX_TRIES):
            head = after if after is not None else await self.head(room)
            appended = _numbered(drafts, head, seen)
            outcome = await self._run(room, head, named, appended)
            if outcome == b"done":
                return appended
            if outcome == b"moved" and after is not None:
                raise Overtaken(f"{room} does not end at {after.seq}")
            seen = await self.find(room, (act for act in named if act[1]))
        raise LogUnavailable(f"others were faster {MAX_TRIES} times")

    async def _run(
        self, room: str, head: Head, named: list[Act], appended: list[Appended]
    ) -> bytes:
        pairs: list[str | bytes] = []
        for act, each in zip(named, appended, strict=True):
            if not each.duplicate:
                pairs += ["\0".join(act) if act[1] else "", each.frame]
        if not pairs:
            return b"done"
        keys = [key(room, "head"), key(room, "events"), key(room, "acts")]
        batch = secrets.token_hex(8)
        arguments: list[Any] = [head.epoch, head.seq, batch, channel(room), MAX_PAYLOAD_BYTES]
        retry_s = FIRST_RETRY_S
        while True:
            try:
                if head.seq == 0:
                    # Before the first event: a room with events is always in the list.
                    await self._redis.sadd("consilium:rooms", room)
                outcome: bytes = await self._script(keys=keys, args=arguments + pairs)
                return outcome
            except (RedisConnectionError, RedisTimeoutError, OSError) as error:
                # It may have happened. Only Redis knows, so it is asked until it says.
                log.warning("append not answered", room=room, error=type(error).__name__)
            except RedisError as error:
                raise LogUnavailable(f"Redis refuses: {error}") from error
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, LONGEST_RETRY_S)

    async def find(self, room: str, acts: Iterable[Act]) -> dict[Act, Appended]:
        """See `Log.find`."""
        wanted = list(acts)
        if not wanted:
            return {}
        with faults():
            names = ["\0".join(act) for act in wanted]
            numbers = await self._redis.hmget(key(room, "acts"), names)
            known = [
                (act, f"{int(number)}-0")
                for act, number in zip(wanted, numbers, strict=True)
                if number is not None
            ]
            if not known:
                return {}
            async with self._redis.pipeline(transaction=False) as pipe:
                for _, number in known:
                    pipe.xrange(key(room, "events"), number, number)
                entries = await pipe.execute()
        return {
            act: _appended(entry[0], duplicate=True)
            for (act, _), entry in zip(known, entries, strict=True)
            if entry
        }

    async def since(self, room: str, epoch: str, seq: int, limit: int) -> History | Gap:
        """See `Log.since`."""
        head = await self._known_head(room)
        if head.epoch != epoch or not 0 <= head.seq - seq <= limit:
            return Gap(head)
        return await self._history(room, head, seq, limit, max_bytes=None)

    async def page(
        self, room: str, epoch: str, seq: int, *, max_events: int, max_bytes: int
    ) -> History | Gap:
        """See `Log.page`."""
        head = await self._known_head(room)
        if head.epoch != epoch or seq > head.seq:
            return Gap(head)
        return await self._history(room, head, seq, max_events, max_bytes)

    async def _known_head(self, room: str) -> Head:
        self._check_open()
        with faults():
            epoch, seq = await self._redis.hmget(key(room, "head"), ["epoch", "seq"])
        return Head("", 0) if epoch is None else Head(epoch.decode(), int(seq or 0))

    async def _history(
        self, room: str, head: Head, seq: int, limit: int, max_bytes: int | None
    ) -> History | Gap:
        events: list[Appended] = []
        size = 0
        # Up to the head that was read before: head and events are of the same moment.
        end = min(head.seq, seq + limit)
        while (first := seq + len(events) + 1) <= end:
            last = min(end, first + _CHUNK - 1)
            with faults():
                entries = await self._redis.xrange(key(room, "events"), f"{first}-0", f"{last}-0")
            if len(entries) != last - first + 1:
                return Gap(head)
            for entry in entries:
                each = _appended(entry)
                size += len(each.frame)
                if max_bytes is not None and events and size > max_bytes:
                    return History(tuple(events), head)
                events.append(each)
        return History(tuple(events), head)

    async def snapshot(self, room: str) -> Snapshot | None:
        """See `Log.snapshot`."""
        self._check_open()
        with faults():
            async with self._redis.pipeline() as pipe:
                pipe.hget(key(room, "head"), "epoch")
                pipe.hmget(key(room, "snapshot"), ["epoch", "state"])
                head_epoch, (epoch, state) = await pipe.execute()
        if state is None or epoch != head_epoch:
            return None
        return msgspec.msgpack.decode(state, type=Snapshot)

    async def store_snapshot(self, room: str, snapshot: Snapshot) -> int:
        """See `Log.store_snapshot`."""
        state = msgspec.msgpack.encode(snapshot)
        with faults():
            fields = {"epoch": snapshot.epoch, "seq": str(snapshot.seq), "state": state}
            await self._redis.hset(key(room, "snapshot"), mapping=fields)
        return len(state)

    async def rooms(self) -> list[str]:
        """See `Log.rooms`."""
        with faults():
            return sorted(room.decode() for room in await self._redis.smembers("consilium:rooms"))

    async def probe(self) -> None:
        """See `Log.probe`."""
        self._check_open()
        with faults():
            await self._redis.incr("consilium:probe")

    async def close(self) -> None:
        """See `Log.close`; the connections are the link's."""
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogUnavailable("the log is closed")


def _act(draft: Draft) -> Act:
    return draft.participant, draft.event.op_id


def _numbered(drafts: Sequence[Draft], head: Head, seen: dict[Act, Appended]) -> list[Appended]:
    """Give the next numbers to what has none, also when an act stands twice in one append."""
    first_ones = dict(seen)
    appended: list[Appended] = []
    seq = head.seq
    for draft in drafts:
        act = _act(draft)
        if act[1] and (first := first_ones.get(act)) is not None:
            appended.append(Appended(first.event, first.frame, duplicate=True))
            continue
        seq += 1
        event = codec.number(draft.event, seq, head.epoch)
        appended.append(Appended(event, codec.encode(event)))
        first_ones[act] = appended[-1]
    return appended


def _appended(entry: tuple[bytes, dict[bytes, bytes]], *, duplicate: bool = False) -> Appended:
    frame = entry[1][b"f"]
    return Appended(codec.decode_event(frame), frame, duplicate)
