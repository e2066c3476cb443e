"""A joined room as its user sees it: what can be read, done, asked and sent.

Every act becomes a message here; how it travels, and that it survives a lost connection, is the
matter of the `Link` below it, which `client` implements.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from protocol import messages as ms
from protocol.base import ClientMessage, ServerMessage
from protocol.codec import decode_client, encode
from protocol.errors import BadMessage, ErrorCode
from protocol.events import Event
from protocol.filming import Camera
from protocol.joining import AnswerFailed
from protocol.outflow import Kind, Outflow
from protocol.recording import Microphone
from protocol.room import RoomState
from protocol.session import ClientSession
from protocol.shapes import Annotation, Shape, Target
from protocol.state import Person, TurnState
from protocol.surroundings import Surroundings
from protocol.uploading import GreetedSocket, Progress, Uploads

Severity = Literal["note", "warning", "critical"]
Token = str | Callable[[], Awaitable[str]] | None


class Link(Protocol):
    """One participant's way to the server, over all of its connections."""

    session: ClientSession
    surroundings: Surroundings
    uploads: Uploads
    token: Token

    @property
    def connected(self) -> bool:
        """Whether a socket is up now."""

    def new_id(self) -> str:
        """Make an id that nobody else makes."""

    async def act(self, act_id: str, message: ms.Op | ms.Ask) -> int:
        """Keep sending a lasting act until its answer comes; return its event's number."""

    async def say(self, message: ClientMessage) -> None:
        """Send a message once a socket is up."""

    def put_presence(self, presence: ms.Presence) -> None:
        """Send where we are soon; a newer one replaces it."""

    async def upload(self, source: Path | bytes, flow: Outflow, progress: Progress | None) -> str:
        """Send bytes until they are stored; return the asset's id."""

    async def greeted(self) -> GreetedSocket:
        """Wait for a socket whose welcome came, and for the events that it spoke of."""

    def subscribe(self, kinds: tuple[type[ServerMessage], ...]) -> AsyncIterator[Any]:
        """Listen from now on."""

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on the state holds."""

    async def fetch(self, path: str) -> bytes:
        """Fetch over HTTP from the same server, with the newest ticket."""

    async def close(self) -> None:
        """Leave."""


async def current(token: Token) -> str | None:
    """Ask for the token if it has to be asked for; raises `ConnectionError` when that fails."""
    if not callable(token):
        return token
    try:
        return await token()
    except Exception as fault:
        # The caller's code, and most likely the same fault of the network that cost the socket.
        raise ConnectionError(f"no token: {fault!r}") from fault


def refuse_unreadable(message: ms.Op | ms.Ask) -> None:
    """Raise `BadMessage` for what the server cannot read: it would be sent again for ever."""
    try:
        (read,) = decode_client(encode(message))
    except UnicodeEncodeError as error:
        raise BadMessage(f"not text: {error}", code=ErrorCode.NOT_STORABLE) from None
    if isinstance(read, BadMessage):
        raise read


class Consultation:
    """A joined room. `state` is whole whenever it is looked at, and only ever read."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def state(self) -> RoomState:
        """Everything lasting in the room, up to the last event that came."""
        return self._link.session.state

    @property
    def welcome(self) -> ms.Welcome:
        """The newest answer to our hello: who we are, the limits, the notices."""
        welcome = self._link.session.welcome
        assert welcome is not None, "`connect` gives a consultation out after its welcome"
        return welcome

    @property
    def people(self) -> dict[str, Person]:
        """Who is here now, by participant."""
        return self._link.surroundings.people

    @property
    def connected(self) -> bool:
        """Whether a socket is up now; nothing needs to be done when it is not."""
        return self._link.connected

    def events(self, *kinds: type[ServerMessage]) -> AsyncIterator[Any]:
        """Listen from now on: numbered events, or the messages of the `kinds` named.

        Name `Welcome` to hear that the state was replaced by a snapshot. A reader that lets
        10,000 wait gets `FellBehind`; leaving the room ends the iteration.
        """
        return self._link.subscribe(kinds or (Event,))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on the state holds; raises `Disconnected` at the end."""
        await self._link.until(holds)

    # -- lasting acts ------------------------------------------------------------------------

    async def annotate(
        self,
        asset: str,
        shape: Shape,
        *,
        label: str = "",
        severity: Severity = "note",
        observation: str | None = None,
        frame: int = 0,
        pts_us: int | None = None,
        mark: str | None = None,
    ) -> int:
        """Make a mark, with the id `mark` if given, and return its event's number."""
        annotation = Annotation(
            id=mark if mark is not None else self._link.new_id(),
            target=Target(asset=asset, frame=frame, pts_us=pts_us),
            shape=shape,
            label=label,
            severity=severity,
            observation=observation,
        )
        return await self.do(ms.PutAnnotation(annotation=annotation))

    async def patch(self, patch: ms.PatchAnnotation) -> int:
        """Change properties of a mark."""
        return await self.do(patch)

    async def delete(self, mark: str) -> int:
        """Take a mark away."""
        return await self.do(ms.DeleteAnnotation(id=mark))

    async def restore(self, mark: str) -> int:
        """Bring a deleted mark back."""
        return await self.do(ms.RestoreAnnotation(id=mark))

    async def comment(self, text: str, *, asset: str | None = None) -> int:
        """Say something to the people in the room."""
        target = Target(asset=asset) if asset is not None else None
        return await self.do(ms.AddComment(id=self._link.new_id(), text=text, target=target))

    async def do(self, op: ms.AnyOp, *, op_id: str | None = None) -> int:
        """Do a lasting act and return its number once the log has it durably.

        A lost connection only delays that. Raises `Refused` when the room does not take it,
        `BadMessage` when it breaks a limit of the protocol, and `OverflowError` when 1,000
        acts wait for their answer already.
        """
        op_id = op_id if op_id is not None else self._link.new_id()
        return await self._link.act(op_id, ms.Op(op_id=op_id, op=op))

    async def ask(
        self,
        text: str,
        assets: Sequence[str] = (),
        *,
        max_tokens: int | None = None,
        interrupts: str | None = None,
        json_schema: Mapping[str, object] | None = None,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> TurnHandle:
        """Put a question to the model; raises as `do`. Returns when the question is taken.

        With `json_schema` the answer's text is JSON of that schema.
        """
        turn = self._link.new_id()
        question = ms.Ask(
            turn=turn,
            text=text,
            assets=tuple(assets),
            max_tokens=max_tokens,
            interrupts=interrupts,
            json_schema=None if json_schema is None else json.dumps(json_schema),
            temperature=temperature,
            seed=seed,
        )
        await self._link.act(turn, question)
        return TurnHandle(self, turn)

    # -- what passes -------------------------------------------------------------------------

    async def cancel(self, turn: str) -> None:
        """End an answer; nothing happens when it ended already."""
        await self._link.say(ms.Cancel(turn=turn))

    def presence(
        self,
        asset: str | None = None,
        x: float | None = None,
        y: float | None = None,
        *,
        typing: bool = False,
    ) -> None:
        """Say where we are; at most 20 a second are sent, the newest wins."""
        self._link.put_presence(ms.Presence(asset=asset, x=x, y=y, typing=typing))

    async def refresh(self, token: str) -> None:
        """Bring a new token, for this connection and those after it."""
        self._link.token = token
        await self._link.say(ms.Refresh(token=token))

    async def upload(
        self,
        source: Path | bytes,
        *,
        name: str | None = None,
        media_type: str = "",
        kind: Kind = "file",
        progress: Progress | None = None,
    ) -> str:
        """Send a file or bytes and return the asset's id once it is checked and stored.

        Goes on where the server stands after a lost connection. `progress` is called with the
        bytes that the server holds and the size. Raises `UploadFailed`.
        """
        if name is None:
            name = source.name if isinstance(source, Path) else ""
        flow = Outflow(name=name, media_type=media_type, kind=kind)
        return await self._link.upload(source, flow, progress)

    def microphone(
        self, media_type: str, *, name: str = "Microphone", asks: bool = False
    ) -> Microphone:
        """Send sound while it is recorded: `async with room.microphone(...) as m: m.send(...)`.

        `media_type` is "audio/pcm;rate=48000;channels=1" (16-bit little-endian) or that of a
        recorder, as "audio/webm;codecs=opus". With `asks` each utterance is also a question.
        """
        flow = Outflow(
            name=name, media_type=media_type, kind="microphone", asks=asks, is_whole=False
        )
        return Microphone(flow, self._link, self._link.uploads)

    def camera(self, *, name: str = "Camera") -> Camera:
        """Send JPEG stills, the newest of which is looked at: `async with room.camera() as c:`."""
        flow = Outflow(name=name, media_type="image/jpeg", kind="camera", is_whole=False)
        return Camera(flow, self._link, self._link.uploads)

    async def fetch_level(self, asset: str, level: int) -> bytes:
        """Fetch one resolution of a picture; 0 is full size. Raises `httpx.HTTPError`."""
        return await self._link.fetch(f"{self._assets_base}/{asset}/levels/{level}")

    async def fetch_frame(self, asset: str, frame: int) -> bytes:
        """Fetch a keyframe of a video or camera, or a frame of a medical image."""
        return await self._link.fetch(f"{self._assets_base}/{asset}/frames/{frame}")

    async def fetch_original(self, asset: str) -> bytes:
        """Fetch the bytes as they were uploaded. Raises `httpx.HTTPError`."""
        return await self._link.fetch(f"{self._assets_base}/{asset}/original")

    async def fetch_turn_record(self, turn: str) -> dict[str, Any]:
        """Fetch what an answer was made of: `prompt`, `token_ids`, `text`."""
        record = await self._link.fetch(f"/v1/rooms/{self.welcome.room}/turns/{turn}")
        parsed: dict[str, Any] = json.loads(record)
        return parsed

    async def close(self) -> None:
        """Leave the room; may be called again."""
        await self._link.close()

    @property
    def _assets_base(self) -> str:
        return self._link.surroundings.media.base


class TurnHandle:
    """A question and its answer. Iterate for the text as it comes; `done` waits for the end."""

    def __init__(self, room: Consultation, turn: str) -> None:
        self.turn = turn
        self._room = room

    @property
    def state(self) -> TurnState | None:
        """What was delivered so far; `None` until `turn.started` came."""
        return self._room.state.turns.get(self.turn)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Give the whole answer in pieces, from its beginning, until it ends in any way."""
        given = 0
        while True:
            state = self.state
            if state is not None and len(state.text) > given:
                piece = state.text[given:]
                given += len(piece)
                yield piece
            elif state is not None and state.status != "running":
                return
            else:
                await self._room.until(partial(self._has_news, given))

    async def done(self) -> TurnState:
        """Wait for the end, cancelled included; raises `AnswerFailed` when it was a fault."""
        await self._room.until(lambda: self._ended)
        state = self.state
        assert state is not None, "only a known turn ends"
        if state.status == "failed":
            raise AnswerFailed(state.code or ErrorCode.INTERNAL, state.message)
        return state

    async def cancel(self) -> None:
        """End the answer."""
        await self._room.cancel(self.turn)

    @property
    def _ended(self) -> bool:
        return self.state is not None and self.state.status != "running"

    def _has_news(self, given: int) -> bool:
        return self._ended or (self.state is not None and len(self.state.text) > given)
