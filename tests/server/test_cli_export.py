"""`consilium export` against a running server."""

import asyncio
import json
import time

import pytest

from server.auth import make_token
from server.cli_export import ExportFailed, Wanted, fetch, http_address

SECRET = "s" * 32


async def test_a_room_lands_in_the_file(server, tmp_path):
    mei = await server.join()
    await mei.comment("hello")
    out = tmp_path / "room.ndjson"
    wanted = Wanted(server.base, "ward-7", "ndjson", out, None)
    size = await asyncio.to_thread(fetch, wanted)
    assert size == out.stat().st_size
    assert json.loads(out.read_text())["type"] == "comment.add"
    assert list(tmp_path.glob(".*.part")) == []


async def test_a_refusal_is_its_code_and_sentence_and_leaves_no_file(server, tmp_path):
    out = tmp_path / "room.pdf"
    with pytest.raises(ExportFailed, match=r"^export_format: format is one of"):
        await asyncio.to_thread(fetch, Wanted(server.base, "ward-7", "pdf", out, None))
    assert list(tmp_path.glob("*.pdf*")) == []


async def test_a_token_is_needed_where_one_is(start, tmp_path):
    server = await start(secret=SECRET)
    out = tmp_path / "a.json"
    with pytest.raises(ExportFailed, match=r"^unauthenticated"):
        await asyncio.to_thread(fetch, Wanted(server.base, "ward-7", "ndjson", out, None))
    token = make_token(
        SECRET, room="ward-7", participant="p", name="P", expires_at=time.time() + 60
    )
    wanted = Wanted(server.base, "ward-7", "ndjson", out, token)
    assert await asyncio.to_thread(fetch, wanted) == 0


def test_a_server_that_is_not_there_and_a_folder_that_is_not(tmp_path):
    with pytest.raises(ExportFailed, match="127.0.0.1:1"):
        fetch(Wanted("http://127.0.0.1:1", "r", "w3c", tmp_path / "x", None))


async def test_a_file_that_cannot_be_written_is_named(server, tmp_path):
    out = tmp_path / "no" / "x.ndjson"
    with pytest.raises(ExportFailed, match="No such file"):
        await asyncio.to_thread(fetch, Wanted(server.base, "ward-7", "ndjson", out, None))


def test_either_scheme_is_taken():
    assert http_address("ws://h:1/") == http_address("http://h:1") == "http://h:1"
    assert http_address("wss://h") == "https://h"
