"""What the engine does for a room while nobody asks: it reads, and answers frequent questions."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial

from engine import api
from protocol.room import RoomState
from protocol.shapes import Actor
from protocol.state import TurnState
from server import conversation
from server.assets import Assets
from server.background import Background
from server.hub import Hosted, Hub

# A room is left alone until nothing happened in it for this long.
QUIET_S = 1.0
# Stands for whatever will be asked: everything in front of a question is the same for all.
ANY_QUESTION = "?"


class Foresight:
    """Background turns of rooms, one at a time a room; the engine ends them when somebody asks.

    Nothing of them is recorded. `questions` are answered ahead, exactly as a person's would be;
    without any the engine only reads what a question would be about.
    """

    def __init__(
        self,
        engine: api.Engine,
        hub: Hub,
        assets: Assets,
        background: Background,
        *,
        questions: tuple[str, ...],
        max_new_tokens: int,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._engine = engine
        self._hub = hub
        self._assets = assets
        self._background = background
        self._questions = questions
        self._max_new_tokens = max_new_tokens
        self._quiet_s = quiet_s
        self._changed: dict[str, asyncio.Event] = {}

    def look_ahead(self, room: str) -> None:
        """Say that something was read or answered in a room; what follows is done once it rests."""
        if room in self._changed:
            self._changed[room].set()
        else:
            self._changed[room] = asyncio.Event()
            self._background.spawn(self._run(room), f"look ahead {room}")

    async def _run(self, room: str) -> None:
        changed = self._changed[room]
        hosted = await self._hub.enter(room)
        try:
            is_quiet = False
            while not is_quiet:
                changed.clear()
                try:
                    async with asyncio.timeout(self._quiet_s):
                        await changed.wait()
                except TimeoutError:
                    await self._prepare(hosted)
                    is_quiet = not changed.is_set()
        finally:
            del self._changed[room]
            self._hub.leave(hosted)

    async def _prepare(self, hosted: Hosted) -> None:
        for question in self._questions or (ANY_QUESTION,):
            turn = await hosted.room.between(partial(self._turn, hosted, question))
            if turn is None:
                return
            try:
                async for event in self._engine.submit(turn):
                    if isinstance(event, api.TurnCancelled | api.TurnFailed):
                        return
            except api.EngineError:
                return

    def _turn(self, hosted: Hosted, question: str, state: RoomState) -> api.Turn | None:
        """The turn that the question would be; None when it is not the time for it."""
        assets = conversation.assets_of_question(state, ())
        by = _likely_asker(state)
        is_busy = state.running_turns() or conversation.unseen(state, assets)
        if by is None or is_busy or not hosted.room.members:
            return None
        asked = TurnState(
            turn=f"ahead-{uuid.uuid4().hex}",
            question=question,
            by=by,
            at=0,
            seq=state.seq + 1,
            assets=assets,
        )
        return api.Turn(
            id=asked.turn,
            session=hosted.room.name,
            tenant=hosted.room.name,
            messages=conversation.messages(state, asked, (), self._assets),
            max_new_tokens=self._max_new_tokens if self._questions else 1,
            kind="background",
        )


def _likely_asker(state: RoomState) -> Actor | None:
    """Who asked last or, when nobody did, who brought the newest asset."""
    people = [turn.by for turn in state.turns.values()]
    people = people or [asset.by for asset in state.assets.values()]
    return people[-1] if people else None
