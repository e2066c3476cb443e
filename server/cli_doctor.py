"""`consilium doctor`: what the product needs, looked for one by one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.client import default_models_cache
from engine.embedded import listed, verify

LEAST_FREE_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for: fine, worth knowing, or in the way of starting."""

    level: Literal["ok", "note", "fault"]
    what: str
    detail: str


def examine(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look for everything `consilium serve` needs, cheap things first."""
    yield Finding("ok", "Python", platform.python_version())
    yield from _packages()
    yield from _settings(environment)
    yield from _models(environment)
    yield _page()


def _packages() -> Iterator[Finding]:
    for package, extra in (
        ("starlette", "server"),
        ("uvicorn", "server"),
        ("torch", "engine"),
        ("transformers", "engine"),
        ("rapidocr", "engine"),
        ("magika", "engine"),
    ):
        if importlib.util.find_spec(package) is None:
            yield Finding("fault", package, f"missing: pip install 'consilium[{extra}]'")
        else:
            yield Finding("ok", package, importlib.metadata.version(package))


def _settings(environment: Mapping[str, str]) -> Iterator[Finding]:
    from server.config import BadSettings, from_environment

    try:
        settings = from_environment(environment)
    except BadSettings as error:
        yield Finding("fault", "settings", str(error))
        return
    if settings.is_open:
        yield Finding("note", "settings", "no secret: open to everybody on this machine")
    else:
        yield Finding("ok", "settings", "room tokens are asked for")
    yield _folder(settings.folder)
    yield _port(settings.host, settings.port)


def _folder(folder: Path) -> Finding:
    there = folder.resolve()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    detail = f"{folder.resolve()}, {free / 1e9:.1f} GB free"
    return Finding("note" if free < LEAST_FREE_BYTES else "ok", "folder", detail)


def _port(host: str, port: int) -> Finding:
    try:
        with socket.create_server((host, port)):
            return Finding("ok", "address", f"{host}:{port} is free")
    except OSError as error:
        detail = f"{host}:{port}: {error.strerror} (is Consilium running already?)"
        return Finding("note", "address", detail)


def _models(environment: Mapping[str, str]) -> Iterator[Finding]:
    cache = default_models_cache(dict(environment))
    for row in listed(cache):
        if not row.present:
            yield Finding("fault", row.name, "not here: consilium models pull")
        elif faults := verify(row.name, cache):
            yield Finding("fault", row.name, "; ".join(faults))
        else:
            yield Finding("ok", row.name, f"{row.bytes / 1e6:.0f} MB, unchanged")


def _page() -> Finding:
    from server.config import Settings

    index = Settings().web_client / "index.html"
    if index.is_file():
        return Finding("ok", "page", str(index))
    return Finding("note", "page", "not built: make web (Node.js 20 or newer)")
