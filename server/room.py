"""Ordering and delivery for one room.

    proposals ─► validate in order ─► one durable append ─► publish ─► answer
                 (on the state that     (all or nothing)
                  the ones before make)

The state runs ahead of the log while an append is under way. If the append fails, the state is
built again from the log, and whoever looks at the state does so between two batches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
import structlog

from protocol import codec
from protocol.errors import ErrorCode, OpRefused, ProtocolError
from protocol.events import Event
from protocol.room import RoomState, apply
from server.background import Background
from server.broker import Broker
from server.log import Appended, Draft, Gap, Head, Log, LogUnavailable

T = TypeVar("T")
Answer = Appended | ProtocolError

log = structlog.get_logger(__name__)

MAX_WAITING = 2_000
MAX_BATCH = 256
PAGE_EVENTS = 1_000
PAGE_BYTES = 4 * 1024 * 1024
# What a snapshot may have before people's acts are refused; each who joins is sent all of it.
MAX_BYTES = 16 * 1024 * 1024
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 2.0


class Member(Protocol):
    """A connection as its room sees it; no call may block."""

    def deliver(self, seq: int, frame: bytes) -> None:
        """Take an event that was published."""
        ...

    def show(self, key: str, frame: bytes) -> None:
        """Take a lossy message."""
        ...


@dataclass(frozen=True, slots=True)
class Proposal:
    """An event that somebody wants: `make` builds it from the state, or raises `OpRefused`.

    `is_same` says whether an event that has this act's number is what was asked for now: the
    same `op_id` for something else is refused. `answer` is called exactly once.
    """

    make: Callable[[RoomState], Event]
    answer: Callable[[Answer], None]
    participant: str = ""
    op_id: str = ""
    is_same: Callable[[Event], bool] = lambda event: True
    conflict: ErrorCode = ErrorCode.OP_CONFLICT


@dataclass(frozen=True, slots=True)
class _Look:
    """Something that reads the state while it equals the log."""

    call: Callable[[RoomState], None]
    refuse: Callable[[ProtocolError], None]


class Room:
    """One room of this process; `run` must be running for anything to happen."""

    def __init__(
        self,
        name: str,
        log: Log,
        broker: Broker,
        background: Background,
        snapshot_events: int,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.name = name
        self.members: dict[int, Member] = {}
        self.head = Head("", 0)
        self._log = log
        self._broker = broker
        self._background = background
        self._snapshot_events = snapshot_events
        self._max_bytes = max_bytes
        self._snapshot_seq = 0
        self._snapshot_bytes = 0
        self._tail_bytes = 0
        self._state: RoomState | None = None
        self._waiting: deque[Proposal | _Look] = deque()
        self._is_closed = False
        self._wakeup = asyncio.Event()
        self._watchers: set[asyncio.Event] = set()

    # -- what others ask of a room --------------------------------------------------------------

    def propose(self, proposal: Proposal) -> None:
        """Queue a proposal; refused at once when too many wait."""
        if len(self._waiting) >= MAX_WAITING:
            refusal = OpRefused("too much waits in this room", code=ErrorCode.OVERLOADED)
            proposal.answer(refusal)
            return
        self._put(proposal)

    async def record(self, *events: Event) -> None:
        """Record what the server itself did, in this order, waiting out a log that fails.

        Raises `OpRefused` only for a fault of the server.
        """
        retry_s = FIRST_RETRY_S
        left = list(events)
        while left:
            answers = [self._answer_to(event) for event in left]
            results = await asyncio.gather(*answers)
            left = [event for event, result in zip(left, results, strict=True) if _passes(result)]
            if left:
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, LONGEST_RETRY_S)

    def _answer_to(self, event: Event) -> asyncio.Future[Answer]:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answer(result: Answer) -> None:
            if not answered.done():
                answered.set_result(result)

        self.propose(Proposal(lambda state: event, answer, op_id=event.op_id))
        return answered

    async def between(self, call: Callable[[RoomState], T]) -> T:
        """Call with the state as the log has it, all of it published.

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

        self._put(_Look(look, refuse))
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

    def receive(self, room: str, frame: bytes) -> None:
        """Deliver a published frame to every member of this process."""
        event = codec.decode_event(frame)
        self.head = Head(event.epoch, event.seq)
        for member in list(self.members.values()):
            member.deliver(event.seq, frame)

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
                while self._waiting:
                    await self._step()
        finally:
            self._is_closed = True
            while self._waiting:
                _refuse(self._waiting.popleft(), _closed())

    def _put(self, waiting: Proposal | _Look) -> None:
        if self._is_closed:
            _refuse(waiting, _closed())
            return
        self._waiting.append(waiting)
        self._wakeup.set()

    async def _step(self) -> None:
        try:
            state = self._state if self._state is not None else await self._load()
        except LogUnavailable:
            self._refuse_all("the room's log cannot be read now", ErrorCode.UNAVAILABLE)
            return
        except Exception:
            # What the log holds cannot be understood: said to each who asks, until it is mended.
            log.exception("room not loaded", room=self.name)
            self._refuse_all("the room's log is damaged", ErrorCode.INTERNAL)
            return
        if isinstance(first := self._waiting[0], _Look):
            self._waiting.popleft()
            first.call(state)
            return
        batch = self._next_batch()
        try:
            await self._append(state, batch)
        except LogUnavailable:
            refusal = OpRefused("the log cannot be written now", code=ErrorCode.UNAVAILABLE)
            # What waits was said after the batch and may build on it, so it fails with it.
            self._fail([*batch, *self._take_proposals()], refusal)
        except Exception:
            # The border of the room: a fault of ours in one batch must not end the room.
            log.exception("batch failed", room=self.name)
            self._fail(batch, OpRefused("a fault of the server", code=ErrorCode.INTERNAL))

    def _refuse_all(self, message: str, code: ErrorCode) -> None:
        for _ in range(len(self._waiting)):
            _refuse(self._waiting.popleft(), OpRefused(message, code=code))

    def _fail(self, batch: list[Proposal], refusal: OpRefused) -> None:
        # The state ran ahead of the log: it is built again before anybody looks.
        self._state = None
        for proposal in batch:
            proposal.answer(refusal)

    def _take_proposals(self) -> list[Proposal]:
        taken = [each for each in self._waiting if isinstance(each, Proposal)]
        self._waiting = deque(each for each in self._waiting if isinstance(each, _Look))
        return taken

    def _next_batch(self) -> list[Proposal]:
        """Take proposals up to the next look, or the next one that repeats an act of the batch."""
        batch: list[Proposal] = []
        acts: set[tuple[str, str]] = set()
        while self._waiting and len(batch) < MAX_BATCH:
            proposal = self._waiting[0]
            if isinstance(proposal, _Look):
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
        answers: list[tuple[Proposal, Answer | None]] = []
        drafts: list[Draft] = []
        for each in batch:
            if (first := found.get((each.participant, each.op_id))) is not None:
                answers.append((each, _repeated(each, first)))
                continue
            try:
                if each.participant and self.is_full:
                    raise OpRefused("the room has no place for more", code=ErrorCode.ROOM_FULL)
                event = each.make(state)
            except OpRefused as refusal:
                answers.append((each, refusal))
                continue
            apply(state, codec.number(event, state.seq + 1, state.epoch))
            drafts.append(Draft(event, each.participant))
            answers.append((each, None))
        appended = await self._log.append(self.name, drafts) if drafts else []
        await self._broker.publish(self.name, [each.frame for each in appended])
        numbered = iter(appended)
        for each, answer in answers:
            each.answer(answer if answer is not None else next(numbered))
        assert not appended or appended[-1].event.seq == state.seq, "one process numbers a room"
        self._tail_bytes += sum(len(each.frame) for each in appended)
        self._settled(state)

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
        while state.seq < head.seq:
            page = await self._log.page(
                self.name, state.epoch, state.seq, max_events=PAGE_EVENTS, max_bytes=PAGE_BYTES
            )
            if isinstance(page, Gap) or not page.events:
                raise LogUnavailable(f"the log of {self.name} has a gap after {state.seq}")
            for appended in page.events:
                apply(state, appended.event)
                self._tail_bytes += len(appended.frame)
        self._state = state
        self.head = Head(state.epoch, state.seq)
        return state


def _refuse(waiting: Proposal | _Look, refusal: ProtocolError) -> None:
    if isinstance(waiting, Proposal):
        waiting.answer(refusal)
    else:
        waiting.refuse(refusal)


def _closed() -> OpRefused:
    return OpRefused("the room was closed", code=ErrorCode.UNAVAILABLE)


def _passes(result: Answer) -> bool:
    """Whether a server's own event has to be tried again; raises what does not pass."""
    if isinstance(result, Appended):
        return False
    if result.code in (ErrorCode.UNAVAILABLE, ErrorCode.OVERLOADED):
        return True
    raise result


def _repeated(proposal: Proposal, first: Appended) -> Answer:
    if proposal.is_same(first.event):
        return first
    return OpRefused("this id was used for something else", code=proposal.conflict)
