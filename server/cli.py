"""The `consilium` command. Each command imports what it needs, so `ask` runs without an extra."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer
from rich.console import Console

from server import cli_models

app = typer.Typer(
    help="Real-time multimodal consultations over WebSocket.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(cli_models.app, name="models")
say = Console(stderr=True, highlight=False)
ROOM = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9_.:-]{0,63}")
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@app.command()
def serve(
    host: Annotated[
        str | None, typer.Option(help="Address; beyond loopback a secret is needed.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.")] = None,
    port_file: Annotated[Path | None, typer.Option(help="Write the port here.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where rooms and pictures are kept.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Embedded name, folder or hub id of a model.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Server processes; more than one needs --redis.")
    ] = None,
    redis: Annotated[
        str | None, typer.Option(help="redis://HOST:PORT, with AOF and appendfsync always.")
    ] = None,
) -> None:
    """Serve rooms until SIGTERM or Ctrl-C. Every setting is also CONSILIUM_<NAME>."""
    try:
        from server.config import BadSettings, from_environment
        from server.serving import serve as run
    except ImportError as error:
        _fail(f"{error.name} is missing: pip install 'consilium[server,engine]'")
    try:
        settings = from_environment(
            host=host,
            port=port,
            port_file=port_file,
            folder=folder,
            model=model,
            engine_dtype=dtype,
            workers=workers,
            redis=redis,
        )
    except BadSettings as error:
        _fail(str(error))
    if (fault := _model_fault(settings.model, settings.models_cache)) is not None:
        _fail(fault)
    if settings.port:
        say.print(
            f"Open http://{settings.host}:{settings.port} (the model is ready in a few seconds; "
            "Ctrl-C stops)"
        )
    run(settings)


@app.command()
def token(
    room: Annotated[str, typer.Option(help="The room it opens.")],
    participant: Annotated[str, typer.Option(help="Who it is for, as an id.")],
    name: Annotated[str, typer.Option(help="The name that others see.")] = "",
    department: Annotated[str, typer.Option(help="The department that others see.")] = "",
    role: Annotated[str, typer.Option(help="chair, member, observer, camera, auditor.")] = "member",
    minutes: Annotated[int, typer.Option(min=1, max=60 * 24, help="How long it is good.")] = 60,
) -> None:
    """Print a room token, signed with the secret in CONSILIUM_SECRET_FILE or CONSILIUM_SECRET."""
    from typing import get_args

    from protocol.shapes import Role
    from server.auth import is_name, make_token
    from server.config import BadSettings, from_environment

    try:
        secret = from_environment().secret
    except BadSettings as error:
        _fail(str(error))
    if secret is None:
        _fail("no secret is set: CONSILIUM_SECRET_FILE or CONSILIUM_SECRET")
    if role not in get_args(Role):
        _fail(f"no role {role!r}: {', '.join(get_args(Role))}")
    for value in (room, participant):
        if not is_name(value):
            _fail(f"{value!r}: letters, digits and _ . : - only, no dot first, 64 at most")
    signed = make_token(
        secret,
        room=room,
        participant=participant,
        name=name or participant,
        department=department,
        role=cast(Any, role),
        expires_at=time.time() + minutes * 60,
    )
    sys.stdout.write(signed + "\n")


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="What to ask the model.")],
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="Send a picture, DICOM file, recording or video."),
    ] = None,
    url: Annotated[str, typer.Option(help="The server.")] = "ws://127.0.0.1:8760",
    room: Annotated[str, typer.Option(help="The room.")] = "lobby",
    name: Annotated[str, typer.Option(help="Your name.")] = "Terminal",
    department: Annotated[str, typer.Option(help="Your department.")] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the room token (or CONSILIUM_TOKEN).")
    ] = None,
) -> None:
    """Join a room, send files, ask, and watch the answer as it comes."""
    import asyncio

    from server.cli_ask import Question, watch

    for path in file or []:
        if not path.is_file():
            _fail(f"no file {path}")
    if not ROOM.fullmatch(room):
        _fail(f"{room!r} is no room: letters, digits and _ . : - only, 64 at most")
    asked = Question(
        url=f"{url.rstrip('/')}/v1/rooms/{room}",
        text=question,
        files=tuple(file or []),
        name=name,
        department=department,
        token=_read_token(token_file),
    )
    try:
        raise typer.Exit(asyncio.run(watch(asked)))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command()
def export(
    room: Annotated[str, typer.Argument(help="The room.")],
    form: Annotated[
        str, typer.Option("--format", help="w3c, coco, dicom-sr, fhir, html or ndjson.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; standard output without it.")
    ] = None,
    url: Annotated[str, typer.Option(help="The server.")] = "http://127.0.0.1:8760",
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the room token (or CONSILIUM_TOKEN).")
    ] = None,
) -> None:
    """Write a room in a format that other programs read."""
    from server.cli_export import ExportFailed, Wanted, fetch

    if not ROOM.fullmatch(room):
        _fail(f"{room!r} is no room: letters, digits and _ . : - only, 64 at most")
    if out is None and sys.stdout.isatty() and form == "dicom-sr":
        _fail("dicom-sr is binary: say where with --out FILE")
    try:
        size = fetch(Wanted(url, room, form, out, _read_token(token_file)))
    except ExportFailed as failure:
        _fail(str(failure))
    if out is not None:
        say.print(f"[green]✓[/] {out}: {size:,} bytes", markup=True)


@app.command()
def doctor() -> None:
    """Check what this machine has and say what to do about what is missing."""
    from server.cli_doctor import examine

    is_well = True
    for finding in examine(dict(os.environ)):
        mark = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "fault": "[red]✗[/]"}[finding.level]
        say.print(f"{mark} {finding.what}: {finding.detail}")
        is_well = is_well and finding.level != "fault"
    if not is_well:
        raise typer.Exit(1)


def _model_fault(model: str, cache: Path | None) -> str | None:
    """Say what is wrong with a model's name, before a port is opened for it."""
    from engine.client import default_models_cache
    from engine.embedded import TABLE, listed

    if model in TABLE:
        rows = listed(cache or default_models_cache(dict(os.environ)))
        is_here = any(row.present for row in rows if row.name == model)
        return None if is_here else f"{model} is not here yet: consilium models pull {model}"
    if (Path(model) / "config.json").is_file() or HUB_ID.fullmatch(model):
        return None
    names = ", ".join(TABLE)
    return f"no model folder {model}; embedded are {names}; a hub id is OWNER/NAME"


def _read_token(token_file: Path | None) -> str | None:
    # A token on the command line would stand in the process list.
    if token_file is None:
        return os.environ.get("CONSILIUM_TOKEN")
    try:
        return token_file.read_text().strip()
    except OSError as error:
        _fail(f"{token_file}: {error.strerror}")


def _fail(message: str) -> NoReturn:
    say.print(f"[red]✗[/] {message}")
    raise typer.Exit(2)


def main() -> None:
    """Run the command line."""
    app()
