"""The whole contract of the engine, the same in process and across processes.

The server speaks to an `Engine` and to nothing else of this package. Everything that crosses
the contract is a frozen `msgspec.Struct`, so it can cross a process border as it is.

Coordinates, everywhere: pixels of the picture *after* its orientation was applied, continuous,
origin at the outer corner of the first pixel, x to the right, y down. A box that covers exactly
the first pixel is `Box(0, 0, 1, 1)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Literal, Protocol

import msgspec


class EngineCode(StrEnum):
    """Why the engine refused or failed; the values are also codes of the wire protocol."""

    OVERLOADED = "overloaded"
    CONTEXT_FULL = "context_full"
    SCHEMA_UNSUPPORTED = "schema_unsupported"
    LANGUAGE_UNSUPPORTED = "language_unsupported"
    ENGINE_LOST = "engine_lost"
    TURN_UNKNOWN = "turn_unknown"
    INTERNAL = "internal"
    MEDIA_UNSUPPORTED = "media_unsupported"
    MEDIA_EMPTY = "media_empty"
    MEDIA_TRUNCATED = "media_truncated"
    MEDIA_CORRUPT = "media_corrupt"
    MEDIA_TOO_MANY_PIXELS = "media_too_many_pixels"
    MEDIA_TOO_BIG = "media_too_big"
    MEDIA_TOO_DENSE = "media_too_dense"
    MEDIA_TIMEOUT = "media_timeout"
    DECODER_LOST = "decoder_lost"


class EngineError(Exception):
    """The engine refused or failed one request; the engine itself goes on.

    `code` is closed (`EngineCode`); `message` is a sentence that may be shown to a person and
    carries no content of the conversation.
    """

    def __init__(self, code: EngineCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Box(msgspec.Struct, frozen=True):
    """An upright rectangle in oriented picture pixels (see the module's first paragraph)."""

    x: float
    y: float
    width: float
    height: float


# -- media and what is seen in it ---------------------------------------------------------------


class Media(msgspec.Struct, frozen=True, kw_only=True):
    """One picture or recording that perception is to look at or listen to.

    `path` names the committed bytes; `None` means the bytes arrive by `feed` and end with
    `close`. Everything perception makes of it (levels) is written under `derived_dir`.
    `declared_type` is what the sender said it is: reported when it lies, never obeyed — but for
    raw samples, which say nothing of themselves: "audio/pcm;rate=48000;channels=1" is 16-bit
    little-endian. Fed bytes of an "audio/…" type are listened to as they come.

    A camera (`is_camera`, no path) is fed whole JPEG stills, of which the newest is looked at; its
    keyframes are numbered from `first_frame` on.
    """

    id: str
    tenant: str
    path: str | None
    name: str
    derived_dir: str
    declared_type: str | None = None
    is_camera: bool = False
    first_frame: int = 0


class Imaging(msgspec.Struct, frozen=True, kw_only=True):
    """What a medical image says of its pixels; nothing in it names a person, a place or a time.

    Words are defined terms of the standard or "". `pixel_spacing` is mm between rows and between
    columns. The window is the file's first; None when it has none. The samples of a picture that
    is not `color` are deeper than a screen, so each frame can be fetched with all of them.
    """

    modality: str = ""
    body_part: str = ""
    view: str = ""
    laterality: str = ""
    pixel_spacing: tuple[float, float] | None = None
    window_center: float | None = None
    window_width: float | None = None
    color: bool = False


class Detected(msgspec.Struct, frozen=True, kw_only=True, tag="detected"):
    """What the bytes really are, known before anything was decoded in full.

    `width` and `height` are those of the oriented picture, 0 for sound. `mismatch` is true when
    the declared type differs from the detected one. Of a medical image, `imaging` says more, and
    `derived_dir/frames/<n>` is complete for each n below `done` of `Progress` "frames".
    `duration_s` is that of a recording (its samples by its rate) or of a video.
    """

    media: str
    media_type: str
    width: int
    height: int
    orientation: int = 1
    mismatch: bool = False
    frames: int = 1
    imaging: Imaging | None = None
    duration_s: float = 0.0


class LevelReady(msgspec.Struct, frozen=True, kw_only=True, tag="level"):
    """One resolution of the picture lies at `path`, complete and readable.

    `level` is the longer side in pixels (16, 64, 256, 1024) or 0 for full resolution; levels come
    in rising order and one that would enlarge the picture is left out. Full is always there.
    """

    media: str
    level: int
    width: int
    height: int
    path: str
    media_type: str


class Keyframe(msgspec.Struct, frozen=True, kw_only=True, tag="keyframe"):
    """A still of a video or camera lies at `path`, an upright JPEG, complete and readable.

    `pts_us` is its presentation time: from a video's beginning, or by a camera's own clock. `like`
    names an earlier keyframe that shows the same, whose rows are also those of this one.
    """

    media: str
    frame: int
    pts_us: int
    path: str
    width: int
    height: int
    like: int | None = None


class Stills(msgspec.Struct, frozen=True, kw_only=True, tag="stills"):
    """How a camera does, since it was opened: stills looked at, passed over and refused.

    `age_s` is how long the newest one had waited when it was looked at; `code` says why the last
    one was refused, None when it was not.
    """

    media: str
    taken: int
    dropped: int
    refused: int
    age_s: float
    code: EngineCode | None = None


class TextRow(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """One piece of text as the recogniser read it; `score` is 0 to 1.

    Of a video or camera it was read on keyframe `frame`, at `pts_us`.
    """

    media: str
    id: str
    box: Box
    text: str
    score: float
    frame: int = 0
    pts_us: int | None = None


Flag = Literal["low", "normal", "high", "abnormal", "unknown"]
Doubt = Literal["separator", "value", "range", "unit", "mark", "reading"]


class LabRow(msgspec.Struct, frozen=True, kw_only=True, tag="lab"):
    """One analyte of a lab sheet, as read: strings are the sheet's own, numbers are parsed.

    `flag` is decided from value and range only; a value on the bound is `normal`; `unknown`
    when either cannot be parsed with certainty. `doubt` says what: a `separator` may be a decimal
    point or part thousands (then `number` is null where both readings remain), `value` or `range`
    is not understood, the range is in another `unit` or its power was not read, the `mark` that the
    sheet prints contradicts the flag, or a `reading` that a lost decimal point would explain was
    not confirmed. `box` covers the row, `cells` the single fields by name (`analyte`, `value`,
    `unit`, `range`, `mark`). `frame` and `pts_us` are as in `TextRow`.
    """

    media: str
    id: str
    box: Box
    analyte: str
    value: str
    unit: str
    range: str
    flag: Flag
    number: float | None = None
    low: float | None = None
    high: float | None = None
    doubt: Doubt | None = None
    cells: dict[str, Box] = {}
    score: float = 1.0
    frame: int = 0
    pts_us: int | None = None


class Speech(msgspec.Struct, frozen=True, kw_only=True, tag="speech"):
    """One utterance: what was said from `start_s` to `end_s` of the recording.

    A later one with the same `id` replaces an earlier, which was not `final`.
    """

    media: str
    id: str
    start_s: float
    end_s: float
    text: str
    final: bool = True


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """How far a long look has come; `total` is 0 while unknown."""

    media: str
    stage: str
    done: int
    total: int


class Completed(msgspec.Struct, frozen=True, kw_only=True, tag="completed"):
    """The last observation of a media item that was looked at in full. Times in seconds."""

    media: str
    timings: dict[str, float] = {}


class MediaFailed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The last observation of a media item that could not be looked at."""

    media: str
    code: EngineCode
    message: str


Observation = (
    Detected
    | LevelReady
    | Keyframe
    | Stills
    | TextRow
    | LabRow
    | Speech
    | Progress
    | Completed
    | MediaFailed
)


# -- turns ---------------------------------------------------------------------------------------

# What a turn is work on, for the engine's sharing: what is asked by people goes before what nobody
# has asked for yet ("background"), and text before pictures.
TurnKind = Literal["text", "image", "video", "background"]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A media item as part of a turn: its bytes and what perception found in it so far.

    The server keeps observations in the room's log and passes them with each turn, so that an
    engine that was restarted answers as one that was not. `missing` says that perception had not
    finished when the turn had to go on. `pictures` are upright pictures that perception made, for a
    model that takes pixels: one of a still, several of a video. `sounds` are decoded recordings,
    16 kHz mono WAV in 16 bits, for a model that hears; their transcript stays out of its prompt.
    `duration_s` is 0 for a still.
    """

    media: str
    name: str
    path: str
    media_type: str
    width: int
    height: int
    text_rows: tuple[TextRow, ...] = ()
    lab_rows: tuple[LabRow, ...] = ()
    speech: tuple[Speech, ...] = ()
    missing: bool = False
    frames: int = 1
    imaging: Imaging | None = None
    pictures: tuple[str, ...] = ()
    sounds: tuple[str, ...] = ()
    duration_s: float = 0.0


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One utterance of the conversation, oldest first.

    `speaker` is how the person is called in the prompt ("Dr Wu (Radiology)"). An answer of the
    model carries its `turn` id: with it the engine finds the very tokens it made, of which `text`
    is the part that was delivered.
    """

    role: Literal["system", "user", "assistant"]
    text: str
    speaker: str = ""
    turn: str | None = None
    seen: tuple[Seen, ...] = ()


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the model.

    `session` names the KV context that is kept across turns (one per room). `messages` is the
    whole conversation, the question last: what of it the engine already holds it does not
    compute again.

    `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 leave every token in. A sampled
    answer is the same again for the same `seed`, whatever runs beside it. Penalties count what
    stands there already (`engine.models.sampling.penalise`). `stop_tokens` end the answer and are
    no part of it. With `json_schema` the answer is JSON of that schema, cut only by its length.

    A point of `priority` is worth some seconds of waiting. A turn that could not begin within
    `deadline_s` seconds fails as overloaded; 0 waits for ever. A background turn stands still
    while any other runs, and is cancelled when its session is asked something.
    """

    id: str
    session: str
    tenant: str
    messages: tuple[Message, ...]
    max_new_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    json_schema: str | None = None
    priority: int = 0
    kind: TurnKind = "text"
    deadline_s: float = 0.0


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the answer, half-open `[start, end)` in characters (code points) of the whole."""

    start: int
    end: int
    kind: Literal["number", "unit", "entity", "out_of_range"]


class TurnStarted(msgspec.Struct, frozen=True, kw_only=True, tag="started"):
    """The prompt is made and scheduled. `prompt` is exactly what the model reads, as text.

    A picture that is given as pixels stands in it as the one mark of the model's template.
    `sight` says what the model was given of the pictures: pixels of at least one, only text that
    perception read, or nothing because there was no picture.
    """

    turn: str
    model: str
    prompt: str
    prompt_tokens: int
    cached_tokens: int
    sight: Literal["pixels", "text", "none"]


class TurnDelta(msgspec.Struct, frozen=True, kw_only=True, tag="delta"):
    """Text added to the answer from character `offset` on: whole graphemes only."""

    turn: str
    offset: int
    text: str
    spans: tuple[Span, ...] = ()


class TurnAnnotation(msgspec.Struct, frozen=True, kw_only=True, tag="annotation"):
    """Ties the part `[start, end)` of the answer to the place in a picture it speaks of."""

    turn: str
    start: int
    end: int
    media: str
    observation: str
    box: Box


class TurnDone(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The answer is complete. `token_ids` are those the model made, the end token excluded.

    `confidences` are the probabilities that the model itself gave to each of them, before any
    penalty, filter or schema. `timings` in seconds from `submit`: `queued`, `first_token`, `total`.
    """

    turn: str
    text: str
    token_ids: tuple[int, ...]
    finish: Literal["stop", "length"]
    prompt_tokens: int
    cached_tokens: int
    timings: dict[str, float]
    confidences: tuple[float, ...] = ()


class TurnCancelled(msgspec.Struct, frozen=True, kw_only=True, tag="cancelled"):
    """The turn ended by `cancel`; `token_ids` are those made until then."""

    turn: str
    token_ids: tuple[int, ...]


class TurnFailed(msgspec.Struct, frozen=True, kw_only=True, tag="turn_failed"):
    """The turn ended by a fault; what was delivered before stays delivered."""

    turn: str
    code: EngineCode
    message: str


TurnEvent = TurnStarted | TurnDelta | TurnAnnotation | TurnDone | TurnCancelled | TurnFailed


# -- state ---------------------------------------------------------------------------------------


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the model answers *now*. `detail` is a sentence for the operator.

    `deterministic`: an answer's bits do not depend on what runs beside it, as checked at the start.
    """

    ready: bool
    model: str
    detail: str
    dtype: str = ""
    device: str = ""
    deterministic: bool = False


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the engine started, and gauges of this moment."""

    gauges: dict[str, float] = {}
    counters: dict[str, float] = {}


class Engine(Protocol):
    """A model and its perception, shared by all rooms of a machine.

    Every accepted `submit` ends with exactly one of `TurnDone`, `TurnCancelled`, `TurnFailed`;
    every accepted `open` with exactly one of `Completed`, `MediaFailed`, also when the process
    behind it is killed. An engine that drops a request silently is not an Engine.
    """

    def submit(self, turn: Turn) -> AsyncIterator[TurnEvent]:
        """Answer a turn. Closing the iterator early cancels the turn.

        Turns of one session run one after the other, those of different sessions at once.
        """
        ...

    async def cancel(self, turn: str) -> bool:
        """End a turn within one step of the model; False when it is not running (any more)."""
        ...

    def open(self, media: Media) -> AsyncIterator[Observation]:
        """Look at a media item: observations as they are made, coarse first."""
        ...

    async def feed(self, media: str, chunk: bytes, pts_us: int) -> None:
        """Add bytes to a media item that was opened without a path."""
        ...

    async def close(self, media: str) -> None:
        """Say that no more bytes come; closing what is not open does nothing."""
        ...

    async def prefetch(self, session: str) -> None:
        """Bring a session's KV context near, because its people are about to ask."""
        ...

    async def drop(self, session: str) -> None:
        """Forget a session's KV context."""
        ...

    async def health(self) -> Health:
        """Answer from the model's own process: raises `EngineError` when it does not."""
        ...

    async def stats(self) -> Stats:
        """Return counters and gauges for the metrics page."""
        ...
