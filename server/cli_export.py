"""`consilium export`: a room from a running server into a file, or to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import httpx

# A server without a secret takes every token, but asks for one.
_NO_TOKEN = "none"
_PATIENCE_S = 200.0
_MOST_WORDS_BYTES = 64 * 1024


class ExportFailed(Exception):
    """The server gave no export; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for; `out` None is standard output."""

    url: str
    room: str
    format: str
    out: Path | None
    token: str | None


def fetch(wanted: Wanted) -> int:
    """Write the export and return its bytes; an unfinished file never has the name asked for."""
    address = f"{http_address(wanted.url)}/v1/rooms/{quote(wanted.room)}/export"
    headers = {"Authorization": f"Bearer {wanted.token or _NO_TOKEN}"}
    try:
        with (
            httpx.Client(timeout=_PATIENCE_S) as http,
            http.stream(
                "GET", address, params={"format": wanted.format}, headers=headers
            ) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise ExportFailed(_reason(answer))
            with _sink(wanted.out) as sink:
                return sum(sink.write(chunk) for chunk in answer.iter_bytes())
    except httpx.HTTPError as error:
        raise ExportFailed(f"{wanted.url}: {error}") from None
    except OSError as error:
        raise ExportFailed(f"{wanted.out}: {error.strerror}") from None


def http_address(url: str) -> str:
    """The address of a server's pages, whichever of its two schemes was given."""
    for socket, page in (("ws://", "http://"), ("wss://", "https://")):
        if url.startswith(socket):
            url = page + url.removeprefix(socket)
    return url.rstrip("/")


def _reason(answer: httpx.Response) -> str:
    try:
        told = answer.read()[:_MOST_WORDS_BYTES]
        body = httpx.Response(200, content=told).json()
        return f"{body['code']}: {body['message']}"
    except (ValueError, KeyError, TypeError):
        return f"the server answered {answer.status_code}"


@contextmanager
def _sink(out: Path | None) -> Iterator[BinaryIO]:
    if out is None:
        yield sys.stdout.buffer
        return
    unfinished = out.with_name(f".{out.name}.part")
    try:
        with unfinished.open("wb") as file:
            yield file
        os.replace(unfinished, out)
    finally:
        unfinished.unlink(missing_ok=True)
