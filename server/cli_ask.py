"""`consilium ask`: a participant in a terminal, over the same protocol as everybody else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from protocol.client import connect
from protocol.consultation import Consultation, TurnHandle
from protocol.errors import CloseCode, ErrorCode
from protocol.joining import AnswerFailed, ConsultationError, Disconnected, UploadFailed
from protocol.messages import AssetProgress
from protocol.shapes import LabRow, SpeechRow, TextRow
from protocol.state import AssetState, TurnState

REFRESH_PER_S = 10
# A connection that was cut, or never came to be.
ABNORMAL = 1006
FLAG_STYLE = {"low": "bold yellow", "high": "bold red", "abnormal": "bold red", "unknown": "dim"}
FLAG_TEXT = {"low": "↓ low", "high": "↑ high", "abnormal": "! abnormal", "unknown": "? unclear"}
SPAN_STYLE = {"out_of_range": "bold red", "number": "cyan", "unit": "cyan", "entity": "green"}


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask where, and the files that go with it."""

    url: str
    text: str
    files: tuple[Path, ...]
    name: str
    department: str
    token: str | None


async def watch(question: Question, *, open_timeout_s: float = 5.0) -> int:
    """Ask and show the answer as it comes; returns the command's exit status."""
    errors = Console(stderr=True, highlight=False)
    try:
        async with connect(
            question.url,
            name=question.name,
            department=question.department,
            token=question.token,
            open_timeout_s=open_timeout_s,
        ) as room:
            return await _ask(room, question)
    except UploadFailed as error:
        errors.print(f"[red]✗[/] upload: {error}")
    except AnswerFailed as error:
        errors.print(f"[red]✗[/] answer: {error}")
    except Disconnected as error:
        errors.print(f"[red]✗[/] {error}{_advice(error.close_code, question)}")
    except (ConsultationError, OSError, ValueError) as error:
        errors.print(f"[red]✗[/] {error}")
    return 1


def _advice(close_code: int, question: Question) -> str:
    """What to type after a room could not be joined."""
    if close_code == CloseCode.UNAUTHENTICATED:
        return "; this server asks for a room token: --token-file FILE or CONSILIUM_TOKEN"
    if close_code == ABNORMAL:
        return f"; is Consilium running at {question.url}? (--url)"
    return ""


async def _ask(room: Consultation, question: Question) -> int:
    screen = Screen(room)
    console = Console()
    asides = Console(stderr=True, highlight=False)
    for notice in room.welcome.notices:
        asides.print(f"[yellow]•[/] {notice}")
    live = Live(
        get_renderable=screen.render,
        console=console,
        refresh_per_second=REFRESH_PER_S,
        transient=True,
        auto_refresh=console.is_terminal,
    )
    reading = asyncio.create_task(screen.follow_reading())
    with live:
        for path in question.files:
            screen.uploading[path.name] = (0, path.stat().st_size)
            asset = await room.upload(path, progress=screen.progress_of(path.name))
            screen.assets.append(asset)
            await _seen(room, asset)
            if not console.is_terminal:
                asides.print(_picture(room.state.assets[asset]))
        screen.turn = await room.ask(question.text, assets=screen.assets)
        async for piece in screen.turn:
            # Without a terminal the words are written as they come, for a pipe.
            if not console.is_terminal:
                console.file.write(piece)
                console.file.flush()
        end = await screen.turn.done()
    reading.cancel()
    # The live display is gone when it ends; what it showed last stays as plain output.
    console.print(screen.render() if console.is_terminal else "")
    if not console.is_terminal and end.finish == "length":
        asides.print("(the answer reached its length limit)")
    return 0 if end.status == "done" else 1


async def _seen(room: Consultation, asset: str) -> None:
    """Wait until the file was read; a question about one that cannot be read is not asked."""

    def state() -> AssetState | None:
        return room.state.assets.get(asset)

    def is_over() -> bool:
        return (known := state()) is not None and known.status in ("read", "failed")

    await room.until(is_over)
    if (end := state()) is not None and end.status == "failed":
        raise UploadFailed(end.code or ErrorCode.INTERNAL, f"{end.name}: {end.message}")


@dataclass
class Screen:
    """What the terminal shows: uploads, what was read, and the answer so far."""

    room: Consultation
    uploading: dict[str, tuple[int, int]] = field(default_factory=dict)
    assets: list[str] = field(default_factory=list)
    reading: dict[str, AssetProgress] = field(default_factory=dict)
    turn: TurnHandle | None = None

    def progress_of(self, name: str) -> _Progress:
        """Return the callback that moves one file's bar."""
        return _Progress(self, name)

    async def follow_reading(self) -> None:
        """Keep how far each asset is read, until cancelled."""
        async for told in self.room.events(AssetProgress):
            self.reading[told.asset] = told

    def render(self) -> RenderableType:
        """Draw the present state."""
        parts: list[RenderableType] = []
        for name, (done, total) in self.uploading.items():
            if done < total:
                parts += [Text(f"sending {name}"), ProgressBar(total=total, completed=done)]
        for asset_id in self.assets:
            if (asset := self.room.state.assets.get(asset_id)) is not None:
                parts.append(_picture(asset))
                told = self.reading.get(asset_id)
                if told is not None and told.total and asset.status == "committed":
                    parts.append(ProgressBar(total=told.total, completed=told.done))
        if self.turn is not None and (state := self.turn.state) is not None:
            parts.append(_answer(state))
        return Group(*parts)


class _Progress:
    def __init__(self, screen: Screen, name: str) -> None:
        self._screen, self._name = screen, name

    def __call__(self, done: int, total: int) -> None:
        self._screen.uploading[self._name] = (done, total)


def _picture(asset: AssetState) -> RenderableType:
    """What is known of an asset: its values as a table, and what was said in it, with its times."""
    size = f" {asset.width}×{asset.height}" if asset.width else ""
    length = f" {_clock(asset.duration_s)}" if asset.duration_s else ""
    failure = f": {asset.message}" if asset.message else ""
    title = f"{asset.name}{size}{length} {asset.status}{failure}"
    labs = [row for row in asset.rows if isinstance(row, LabRow)]
    lines = sum(isinstance(row, TextRow) for row in asset.rows)
    if not labs and lines:
        title += f", {lines} lines of text"
    parts: list[RenderableType] = [_table(title, labs) if labs else Text(title, style="dim")]
    for row in asset.rows:
        if isinstance(row, SpeechRow):
            parts.append(Text(f"{_clock(row.start)}  {row.text}"))
    return Group(*parts)


def _table(title: str, labs: list[LabRow]) -> Table:
    columns = ["analyte", "value", "unit", "range", "flag"]
    has_times = any(row.pts_us is not None for row in labs)
    table = Table(*(["time"] if has_times else []), *columns, title=title, title_justify="left")
    for row in labs:
        cells = [row.analyte, row.value, row.unit, row.range, FLAG_TEXT.get(row.flag, "")]
        if has_times:
            cells.insert(0, _clock((row.pts_us or 0) / 1e6))
        # `Text`, so that nothing on a sheet is read as markup.
        table.add_row(*(Text(cell) for cell in cells), style=FLAG_STYLE.get(row.flag, ""))
    return table


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


def _answer(turn: TurnState) -> Text:
    text = Text(turn.text)
    for span in turn.spans:
        text.stylize(SPAN_STYLE[span.kind], span.start, span.end)
    if turn.status == "running":
        text.append(" …" if turn.text else "thinking …", style="dim")
    elif turn.status != "done":
        text.append(f" [{turn.status}] {turn.message}", style="red")
    elif turn.finish == "length":
        text.append("\n(the answer reached its length limit)", style="dim")
    elif turn.sight == "text":
        text.append("\n(the model read the text of the pictures, not their pixels)", style="dim")
    return text
