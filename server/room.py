"""Ordering and delivery for one room.

    proposals ─► validate on a copy ─► one durable append ─► deliver ─► answer
                                       (all or nothing)

`head` is what was delivered, and the state is that of `head`. Where several processes number one
room, an append says after which event it comes: if another one was faster, the batch is checked
again on what that did. What others append comes over the bus; what is missing there is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import msgspec
import structlog

from protocol import codec
from protocol.errors import ErrorCode, OpRefused, ProtocolError
from protocol.events import Event
from protocol.room import RoomState, apply
from server.background import Background
from server.log import Appended, Draft, Gap, Head, Log, LogUnavailable, Overtaken
from server.proposals import (
    Answer,
    Look,
    Member,
    Proposal,
    closed,
    is_passing,
    refuse,
    repeated,
)

T = TypeVar("T")

log = structlog.get_logger(__name__)

MAX_WAITING = 2_000
MAX_BATCH = 256
PAGE_EVENTS = 1_000
PAGE_BYTES = 4 * 1024 * 1024
# What a snapshot may have before people's acts are refused; each who joins is sent all of it.
MAX_BYTES = 16 * 1024 * 1024
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 2.0
# Whoever is overtaken has read what the others did, so each time one of them got through.
MAX_OVERTAKEN = 64


class Room:
    """One room of this process; `run` must be running for anything to happen."""

    def __init__(
        self,
        name: str,
        log: Log,
        background: Background,
        snapshot_events: int,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.name = name
        self.members: dict[int, Member] = {}
        self.head = Head("", 0)
        self._log = log
        self._background = background
        self._snapshot_events = snapshot_events
        self._max_bytes = max_bytes
        self._snapshot_seq = 0
        self._snapshot_bytes = 0
        self._tail_bytes = 0
        self._state: RoomState | None = None
        self._waiting: deque[Proposal | Look] = deque()
        self._is_closed = False
        self._has_gap = False
        self._times_overtaken = 0
        self._wakeup = asyncio.Event()
        self._watchers: set[asyncio.Event] = set()

    def __len__(self) -> int:
        """How many acts wait for the log."""
        return len(self._waiting)

    # -- what others ask of a room --------------------------------------------------------------

    def propose(self, proposal: Proposal) -> None:
        """Queue a proposal; refused at once when too many wait."""
        if len(self._waiting) >= MAX_WAITING:
            refusal = OpRefused("too much waits in this room", code=ErrorCode.OVERLOADED)
            proposal.answer(refusal)
            return
        self._put(proposal)

    async def record(
        self, *events: Event, holds: Callable[[RoomState], bool] = lambda state: True
    ) -> None:
        """Record what the server itself did, in this order, waiting out a log that fails.

        Raises `OpRefused` for a fault, or when `holds` is not true of the state before an event.
        """
        retry_s = FIRST_RETRY_S
        left = list(events)
        while left:
            answers = [self._answer_to(event, holds) for event in left]
            results = await asyncio.gather(*answers)
            left = [
                event for event, result in zip(left, results, strict=True) if is_passing(result)
            ]
            if left:
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, LONGEST_RETRY_S)

    def _answer_to(
        self, event: Event, holds: Callable[[RoomState], bool]
    ) -> asyncio.Future[Answer]:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answer(result: Answer) -> None:
            if not answered.done():
                answered.set_result(result)

        def make(state: RoomState) -> Event:
            if not holds(state):
                raise OpRefused("it is over", code=ErrorCode.TURN_UNKNOWN)
            return event

        self.propose(Proposal(make, answer, op_id=event.op_id))
        return answered

    async def between(self, call: Callable[[RoomState], T], *, fresh: bool = False) -> T:
        """Call with the state of what was delivered; `fresh` reads first what others appended.

        Raises `OpRefused` (`unavailable`) when the room cannot be read. `call` must not block.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def look(state: RoomState) -> None:
            if done.done():
                return
            try:
                done.set_result(call(state))
            except Exception as fault:
                # Whoever looks bears the fault: the room is everybody's and goes on.
                done.set_exception(fault)

        def refuse(error: ProtocolError) -> None:
            if not done.done():
                done.set_exception(error)

        self._put(Look(look, refuse, fresh and self._log.is_shared))
        return await done

    async def until(self, is_so: Callable[[RoomState], bool]) -> None:
        """Return when the state fulfils a condition."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            while not await self.between(is_so):
                await changed.wait()
                changed.clear()
        finally:
            self._watchers.discard(changed)

    def event(self, frame: bytes) -> None:
        """Take an event that another process appended, or that came back from the bus."""
        if not self._accept(Appended(codec.decode_event(frame), frame)):
            self.gap()

    def gap(self) -> None:
        """Read from the log what may have been missed."""
        self._has_gap = True
        self._wakeup.set()

    def show(self, key: str, frame: bytes, *, but: int | None = None) -> None:
        """Send a lossy message to all members, one left out."""
        for number, member in list(self.members.items()):
            if number != but:
                member.show(key, frame)

    @property
    def is_full(self) -> bool:
        """Whether people's acts are refused because the room has become too large."""
        return self._snapshot_bytes >= self._max_bytes

    @property
    def waiting(self) -> int:
        """How many acts wait for the log."""
        return len(self._waiting)

    @property
    def is_quiet(self) -> bool:
        """Whether nobody is here and nothing waits."""
        return not (self.members or self._waiting or self._watchers)

    # -- the one worker -------------------------------------------------------------------------

    async def run(self) -> None:
        """Work off what waits, in order, until cancelled."""
        try:
            while True:
                await self._wakeup.wait()
                self._wakeup.clear()
                while self._waiting or self._has_gap:
                    await self._step()
        finally:
            self._is_closed = True
            self._refuse_all(closed())

    def _put(self, waiting: Proposal | Look) -> None:
        if self._is_closed:
            refuse(waiting, closed())
            return
        self._waiting.append(waiting)
        self._wakeup.set()

    async def _step(self) -> None:
        look = self._waiting[0] if self._waiting and isinstance(self._waiting[0], Look) else None
        try:
            state = self._state if self._state is not None else await self._load()
            if self._has_gap or (look is not None and look.is_fresh):
                await self._follow(state)
        except LogUnavailable:
            text = "the room's log cannot be read now"
            self._refuse_all(OpRefused(text, code=ErrorCode.UNAVAILABLE))
            if self._has_gap:
                await asyncio.sleep(FIRST_RETRY_S)
            return
        except Exception:
            # What the log holds cannot be understood: said to each who asks, until it is mended.
            log.exception("room not loaded", room=self.name)
            text = "the room's log is damaged"
            self._refuse_all(OpRefused(text, code=ErrorCode.INTERNAL))
            return
        if look is not None:
            self._waiting.popleft()
            look.call(state)
        elif batch := self._next_batch():
            await self._try(state, batch)

    async def _try(self, state: RoomState, batch: list[Proposal]) -> None:
        try:
            await self._append(state, batch)
            self._times_overtaken = 0
        except Overtaken:
            self._has_gap = True
            self._times_overtaken += 1
            if self._times_overtaken > MAX_OVERTAKEN:
                self._times_overtaken = 0
                self._fail(batch, OpRefused("others were faster", code=ErrorCode.OVERLOADED))
            else:
                self._waiting.extendleft(reversed(batch))
        except LogUnavailable:
            refusal = OpRefused("the log cannot be written now", code=ErrorCode.UNAVAILABLE)
            # What waits was said after the batch and may build on it, so it fails with it.
            waiting, self._waiting = self._waiting, deque()
            self._fail([*batch, *(each for each in waiting if isinstance(each, Proposal))], refusal)
            self._waiting.extendleft(each for each in reversed(waiting) if isinstance(each, Look))
        except Exception:
            # The border of the room: a fault of ours in one batch must not end the room.
            log.exception("batch failed", room=self.name)
            self._fail(batch, OpRefused("a fault of the server", code=ErrorCode.INTERNAL))

    def _fail(self, batch: list[Proposal], refusal: OpRefused) -> None:
        for proposal in batch:
            proposal.answer(refusal)

    def _refuse_all(self, refusal: OpRefused) -> None:
        for _ in range(len(self._waiting)):
            refuse(self._waiting.popleft(), refusal)

    def _next_batch(self) -> list[Proposal]:
        """Take proposals up to the next look, or the next one that repeats an act of the batch."""
        batch: list[Proposal] = []
        acts: set[tuple[str, str]] = set()
        while self._waiting and len(batch) < MAX_BATCH:
            proposal = self._waiting[0]
            if isinstance(proposal, Look):
                break
            act = (proposal.participant, proposal.op_id)
            if proposal.op_id and act in acts:
                break
            acts.add(act)
            batch.append(proposal)
            self._waiting.popleft()
        return batch

    async def _append(self, state: RoomState, batch: list[Proposal]) -> None:
        acts = [(each.participant, each.op_id) for each in batch if each.op_id]
        found = await self._log.find(self.name, acts)
        # Its parts are immutable and shared, so the copy costs some dictionaries.
        ahead = RoomState.from_snapshot(state.snapshot())
        after = Head(ahead.epoch, ahead.seq)
        answers: list[tuple[Proposal, Answer | None]] = []
        drafts: list[Draft] = []
        for each in batch:
            if (first := found.get((each.participant, each.op_id))) is not None:
                answers.append((each, repeated(each, first)))
                continue
            try:
                if each.participant and self.is_full:
                    raise OpRefused("the room has no place for more", code=ErrorCode.ROOM_FULL)
                event = each.make(ahead)
            except OpRefused as refusal:
                answers.append((each, refusal))
                continue
            apply(ahead, codec.number(event, ahead.seq + 1, ahead.epoch))
            drafts.append(Draft(event, each.participant))
            answers.append((each, None))
        appended = await self._log.append(self.name, drafts, after) if drafts else []
        for numbered in appended:
            self._accept(numbered)
        rest = iter(appended)
        for each, answer in answers:
            each.answer(answer or next(rest))

    def _accept(self, appended: Appended) -> bool:
        """Deliver the next event and fold it; False when one is missing before it."""
        event, head, state = appended.event, self.head, self._state
        if state is None or event.epoch != head.epoch or event.seq > head.seq + 1:
            return False
        if event.seq == head.seq + 1:
            apply(state, event)
            self.head = Head(event.epoch, event.seq)
            self._tail_bytes += len(appended.frame)
            for member in list(self.members.values()):
                member.deliver(event.seq, appended.frame)
            self._settled(state)
        return True

    def _settled(self, state: RoomState) -> None:
        for watcher in self._watchers:
            watcher.set()
        # A snapshot costs the room's size, so it waits until as much was said since the last:
        # then all of them together cost no more than the events do.
        is_due = state.seq - self._snapshot_seq >= self._snapshot_events
        is_due |= self._tail_bytes >= self._max_bytes // 4
        if is_due and self._tail_bytes >= self._snapshot_bytes:
            self._snapshot_seq, self._tail_bytes = state.seq, 0
            self._background.spawn(self._keep_snapshot(), f"snapshot of {self.name}")

    async def _keep_snapshot(self) -> None:
        try:
            snapshot = await self.between(RoomState.snapshot)
            self._snapshot_bytes = await self._log.store_snapshot(self.name, snapshot)
        except (LogUnavailable, OpRefused):
            log.warning("snapshot not kept; the next one will be", room=self.name)

    async def _load(self) -> RoomState:
        """Build the state from the newest snapshot and every event behind it."""
        head = await self._log.head(self.name)
        snapshot = await self._log.snapshot(self.name)
        state = RoomState.from_snapshot(snapshot) if snapshot else RoomState(head.epoch)
        self._snapshot_seq, self._tail_bytes = state.seq, 0
        self._snapshot_bytes = len(msgspec.msgpack.encode(snapshot)) if snapshot else 0
        self.head, self._state = Head(state.epoch, state.seq), state
        try:
            await self._follow(state)
        except Exception:
            self._state = None  # nobody is a member yet, so nothing was delivered
            raise
        return state

    async def _follow(self, state: RoomState) -> None:
        """Read the log to its end and take what is new."""
        while True:
            # Noted before reading: what is said meanwhile asks for another look.
            self._has_gap = False
            try:
                page = await self._log.page(
                    self.name, state.epoch, state.seq, max_events=PAGE_EVENTS, max_bytes=PAGE_BYTES
                )
            except LogUnavailable:
                self._has_gap = True
                raise
            if isinstance(page, Gap):
                raise LogUnavailable(f"the log of {self.name} has a gap after {state.seq}")
            for appended in page.events:
                self._accept(appended)
            if state.seq >= page.head.seq:
                return
