"""A room's questions and the engine: asked, waited for, answered, ended exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from engine import api
from protocol.errors import ErrorCode, OpRefused
from protocol.events import Event, TurnCancelled, TurnStarted
from protocol.messages import Ask
from protocol.room import RoomState
from protocol.shapes import Actor
from server import conversation, translate
from server.answer import Answer, failure
from server.assets import Assets
from server.background import Background
from server.gather import Gather
from server.hub import Hosted, Hub
from server.leases import Leases
from server.log import Appended, LogUnavailable
from server.notes import End, EndTurn
from server.proposals import Answer as RoomAnswer
from server.proposals import Proposal
from server.turn_records import TurnRecords

T = TypeVar("T")
LEASE_RETRY_S = 0.5


class _Ended(Exception):
    """Somebody ended the turn while it waited."""


@dataclass(slots=True)
class _Running:
    """A turn between its start and its end; `end` says who ended it, if anybody did."""

    room: str
    turn: str
    by: Actor
    ask: Ask
    end: End | None = None
    ended_by: Actor = translate.SERVER
    is_ended: asyncio.Event = field(default_factory=asyncio.Event)
    gather: Gather[api.TurnEvent] | None = None

    def stop(self, end: End, by: Actor) -> None:
        """End the turn: nothing more of it is delivered."""
        if self.end is None:
            self.end, self.ended_by = end, by
            self.is_ended.set()
            if self.gather is not None:
                self.gather.stop()

    async def unless_ended(self, work: Awaitable[T]) -> T:
        """Await something; raises `_Ended` when the turn is ended first."""
        task = asyncio.ensure_future(work)
        ended = asyncio.ensure_future(self.is_ended.wait())
        try:
            await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _Ended
            return await task
        finally:
            ended.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


class Turns:
    """All turns of this process: the one that took a question answers it.

    Turns of one room are answered one after the other, because each is asked with the answers
    before it; those of different rooms at once. A lease tells the other processes that somebody
    answers; a turn that they ended, because the lease was lost, takes no more events.
    """

    def __init__(
        self,
        engine: api.Engine,
        hub: Hub,
        assets: Assets,
        records: TurnRecords,
        leases: Leases,
        background: Background,
        wall: Callable[[], float],
        *,
        max_new_tokens: int,
        room_turns: int,
        perception_wait_s: float,
        gather_s: float,
    ) -> None:
        self._engine = engine
        self._hub = hub
        self._assets = assets
        self._records = records
        self._leases = leases
        self._background = background
        self._wall = wall
        self._max_new_tokens = max_new_tokens
        self._room_turns = room_turns
        self._perception_wait_s = perception_wait_s
        self._gather_s = gather_s
        self._running: dict[tuple[str, str], _Running] = {}
        self._lines: dict[str, asyncio.Lock] = {}
        self._expecting: set[str] = set()
        # Called with the room in which a turn has ended.
        self.on_end: Callable[[str], None] = lambda room: None

    def __len__(self) -> int:
        return len(self._running)

    def is_running(self, room: str, turn: str) -> bool:
        """Whether this process answers the turn."""
        return (room, turn) in self._running

    def ask(
        self, hosted: Hosted, by: Actor, ask: Ask, answer: Callable[[RoomAnswer], None]
    ) -> None:
        """Take a question; `answer` is called once it is durable, or why it was not taken."""

        def make(state: RoomState) -> Event:
            self._check(state, ask)
            return TurnStarted(
                at=self._now_ms(),
                actor=by,
                op_id=ask.turn,
                turn=ask.turn,
                question=ask.text,
                assets=conversation.assets_of_question(state, ask.assets),
            )

        def is_same(first: Event) -> bool:
            return isinstance(first, TurnStarted) and first.question == ask.text

        def answered(result: RoomAnswer) -> None:
            if isinstance(result, Appended) and not result.duplicate:
                self._start(hosted, by, ask)
            answer(result)

        hosted.room.propose(
            Proposal(make, answered, by.id, ask.turn, is_same, ErrorCode.TURN_EXISTS)
        )

    def _check(self, state: RoomState, ask: Ask) -> None:
        if ask.turn in state.turns:
            raise OpRefused("the turn id was used before", code=ErrorCode.TURN_EXISTS)
        if len(state.running_turns()) >= self._room_turns:
            raise OpRefused("too many questions wait in this room", code=ErrorCode.OVERLOADED)
        for asset in ask.assets:
            if asset not in state.assets:
                raise OpRefused(f"asset {asset} is not in this room", code=ErrorCode.ASSET_UNKNOWN)
        if ask.interrupts is not None and ask.interrupts not in state.turns:
            raise OpRefused("the turn to interrupt is unknown", code=ErrorCode.TURN_UNKNOWN)

    def _start(self, hosted: Hosted, by: Actor, ask: Ask) -> None:
        room = hosted.room.name
        if ask.interrupts is not None:
            # One that ended in the same moment needs no end.
            if not self.end(room, ask.interrupts, "barge_in", by):
                self._hub.neighbours.end_turn(room, ask.interrupts, "barge_in", by)
        running = _Running(room, ask.turn, by, ask)
        self._running[room, ask.turn] = running
        self.expect(room)
        self._background.spawn(self._run(running), f"turn {ask.turn}")

    def expect(self, room: str) -> None:
        """Let the engine bring a room's context near, because somebody may ask soon."""
        if room not in self._expecting:
            self._expecting.add(room)
            self._background.spawn(self._prefetch(room), f"prefetch {room}")

    async def _prefetch(self, room: str) -> None:
        try:
            await self._engine.prefetch(room)
        except api.EngineError:
            # An engine that is away has nothing to bring near.
            pass
        finally:
            self._expecting.discard(room)

    def end(self, room: str, turn: str, end: End, by: Actor) -> bool:
        """End a turn now; False when it is not running (any more)."""
        running = self._running.get((room, turn))
        if running is None or running.end is not None:
            return False
        running.stop(end, by)
        return True

    async def end_elsewhere(self, hosted: Hosted, turn: str, end: End, by: Actor) -> bool:
        """Ask the process that answers a turn to end it; False when nobody answers it."""

        def is_running(state: RoomState) -> bool:
            return turn in state.turns and state.turns[turn].status == "running"

        if not self._leases.is_shared or not await hosted.room.between(is_running):
            return False
        self._hub.neighbours.end_turn(hosted.room.name, turn, end, by)
        return True

    def end_for_neighbour(self, room: str, note: EndTurn) -> None:
        """End a turn because another process was asked to."""
        self.end(room, note.turn, note.end, note.by)

    def interrupt_all(self) -> None:
        """End every turn because the server stops."""
        for running in list(self._running.values()):
            running.stop("interrupted", translate.SERVER)

    async def _run(self, running: _Running) -> None:
        hosted = await self._hub.enter(running.room)
        line = self._lines.setdefault(running.room, asyncio.Lock())
        try:
            await running.unless_ended(self._take_lease(running))
            await running.unless_ended(self._wait_for_sight(hosted, running.turn))
            await running.unless_ended(hosted.room.until(self._is_next(running)))
            await running.unless_ended(line.acquire())
            try:
                await self._answer(hosted, running)
            finally:
                line.release()
        except _Ended:
            pass
        except api.EngineError as error:
            await hosted.room.record(
                failure(running.turn, self._now_ms(), translate.code(error.code), error.message)
            )
        except OpRefused as refusal:
            # Another process found the lease over and ended the turn.
            if refusal.code != ErrorCode.TURN_UNKNOWN:
                raise
        finally:
            if running.end is not None:
                await hosted.room.record(self._ending(running))
            await self._leases.let_go(running.room, lease_name(running.turn))
            del self._running[running.room, running.turn]
            if not any(each.room == running.room for each in self._running.values()):
                self._lines.pop(running.room, None)
            self._hub.leave(hosted)
            self.on_end(running.room)

    async def _take_lease(self, running: _Running) -> None:
        is_taken = False
        while not is_taken:
            try:
                await self._leases.take(running.room, lease_name(running.turn))
                is_taken = True
            except LogUnavailable:
                await asyncio.sleep(LEASE_RETRY_S)

    def _is_next(self, running: _Running) -> Callable[[RoomState], bool]:
        """Whether no other process still answers an earlier question of the room."""

        def is_next(state: RoomState) -> bool:
            mine = state.turns[running.turn].seq
            return not any(
                turn.seq < mine and not self.is_running(running.room, turn.turn)
                for turn in state.running_turns()
            )

        return is_next

    async def _wait_for_sight(self, hosted: Hosted, turn: str) -> None:
        """Wait until perception is done with the turn's assets, but not for ever."""

        def is_seen(state: RoomState) -> bool:
            return not conversation.unseen(state, state.turns[turn].assets)

        try:
            async with asyncio.timeout(self._perception_wait_s):
                await hosted.room.until(is_seen)
        except TimeoutError:
            # The turn goes on with what is there and says what is missing.
            pass

    async def _answer(self, hosted: Hosted, running: _Running) -> None:
        room, name = hosted.room, running.turn
        question, missing = await room.between(lambda state: self._question(state, running))
        answer = Answer(room, self._records, name, missing, self._now_ms)
        running.gather = Gather(self._engine.submit(question), self._gather_s)
        if running.end is not None:
            running.gather.stop()
        try:
            async for group in running.gather.groups():
                if await answer.write(group):
                    return
            if running.end is None:
                lost = failure(name, self._now_ms(), ErrorCode.ENGINE_LOST, "the engine was lost")
                await room.record(lost)
        finally:
            # Closing the engine's iterator early frees the turn's place in its batch.
            await running.gather.close()

    def _question(self, state: RoomState, running: _Running) -> tuple[api.Turn, tuple[str, ...]]:
        turn = state.turns[running.turn]
        missing = conversation.unseen(state, turn.assets)
        said = conversation.messages(state, turn, missing, self._assets)
        question = api.Turn(
            id=running.turn,
            session=running.room,
            tenant=running.room,
            messages=said,
            max_new_tokens=running.ask.max_tokens or self._max_new_tokens,
            temperature=running.ask.temperature,
            seed=running.ask.seed,
            json_schema=running.ask.json_schema,
        )
        return question, missing

    def _ending(self, running: _Running) -> Event:
        if running.end == "interrupted":
            message = "the server stopped while the turn ran"
            code = ErrorCode.TURN_INTERRUPTED
            return failure(running.turn, self._now_ms(), code, message)
        assert running.end is not None
        return TurnCancelled(
            at=self._now_ms(),
            actor=running.ended_by,
            op_id=f"end:{running.turn}",
            turn=running.turn,
            reason=running.end,
        )

    def _now_ms(self) -> int:
        return int(self._wall() * 1000)


def lease_name(turn: str) -> str:
    """Name the lease of whoever answers a turn."""
    return f"turn:{turn}"
