"""`consilium models`: the embedded models, which are data from a package index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from engine.client import default_models_cache
from engine.embedded import TABLE, ModelUnavailable, listed, pull, verify

app = typer.Typer(help="List, fetch and check the embedded models.", no_args_is_help=True)
STAGES = {
    "download": "downloading",
    "unpack": "unpacking",
    "convert": "converting to bf16 (once)",
    "verify": "checking",
}
Names = Annotated[list[str] | None, typer.Argument(help="Model names; all when left out.")]
Cache = Annotated[
    Path | None, typer.Option("--cache", help="Where models are kept.", show_default=False)
]


@app.command("list")
def list_models(cache: Cache = None) -> None:
    """Show each embedded model, whether it is here, and its licence."""
    console = Console()
    table = Table("model", "role", "here", "size", "licence")
    for row in listed(_cache(cache)):
        size = f"{row.bytes / 1e6:,.0f} MB" if row.present else "—"
        table.add_row(row.name, row.role, "yes" if row.present else "no", size, row.licence)
    console.print(table)
    # Outside the table, where a narrow terminal does not break it in pieces.
    console.print(f"in {_cache(cache)}", soft_wrap=True, highlight=False)


@app.command("pull")
def pull_models(names: Names = None, cache: Cache = None) -> None:
    """Fetch, check and convert models; what is here already is left as it is."""
    for name in names or list(TABLE):
        try:
            with _shown(name) as show:
                folder = pull(name, _cache(cache), show)
        except ModelUnavailable as error:
            raise _failed(str(error)) from error
        Console(stderr=True).print(f"[green]✓[/] {name} in {folder}", highlight=False)


@app.command("verify")
def verify_models(names: Names = None, cache: Cache = None) -> None:
    """Hash the stored files again and name every one that changed."""
    faults: list[str] = []
    for name in names or list(TABLE):
        try:
            with _shown(name) as show:
                faults += verify(name, _cache(cache), show)
        except ModelUnavailable as error:
            faults.append(str(error))
    if faults:
        raise _failed("\n".join(faults))
    Console(stderr=True).print("[green]✓[/] every file is the one that was stored")


@contextmanager
def _shown(name: str) -> Iterator[_Bar]:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress, name, console)


class _Bar:
    """One bar for all stages of a model; a plain line a stage where no terminal is."""

    def __init__(self, progress: Progress, name: str, console: Console) -> None:
        self._progress, self._name, self._console = progress, name, console
        self._task = progress.add_task(name, total=None)
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        description = f"{self._name}: {STAGES.get(stage, stage)}"
        if stage != self._stage:
            self._stage = stage
            if not self._console.is_terminal:
                self._console.print(description, highlight=False)
        self._progress.update(
            self._task, description=description, completed=done, total=total or None
        )


def _cache(stated: Path | None) -> Path:
    return stated or default_models_cache(dict(os.environ))


def _failed(message: str) -> typer.Exit:
    Console(stderr=True).print(f"[red]✗[/] {message}", highlight=False)
    return typer.Exit(1)
