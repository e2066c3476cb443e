import asyncio
import os
from pathlib import Path

import pytest

from engine.api import EngineCode, EngineError
from engine.perception.spool import Spool


def content(path):
    return Path(path).read_bytes()


async def test_chunks_lie_in_one_file_in_the_order_they_came(tmp_path):
    spool = Spool(str(tmp_path / "derived"), 100)
    complete = asyncio.create_task(spool.complete(5))
    for chunk in (b"one ", b"two ", b"three"):
        await spool.write(chunk)
    await spool.end()
    assert content(await complete) == b"one two three"
    spool.discard()
    assert os.listdir(tmp_path / "derived") == []


async def test_nothing_at_all_is_an_empty_file(tmp_path):
    spool = Spool(str(tmp_path), 100)
    await spool.end()
    assert content(await spool.complete(5)) == b""


async def test_more_than_the_limit_fails_and_is_not_kept(tmp_path):
    spool = Spool(str(tmp_path), 10)
    complete = asyncio.create_task(spool.complete(5))
    for _ in range(5):
        await spool.write(b"12345678")
    with pytest.raises(EngineError) as refused:
        await complete
    assert refused.value.code is EngineCode.MEDIA_TOO_BIG
    assert (tmp_path / ".spool").stat().st_size <= 10


async def test_silence_ends_the_wait(tmp_path):
    spool = Spool(str(tmp_path), 10)
    with pytest.raises(EngineError) as refused:
        await spool.complete(0.02)
    assert refused.value.code is EngineCode.MEDIA_TIMEOUT


async def test_bytes_after_the_end_are_not_kept(tmp_path):
    spool = Spool(str(tmp_path), 100)
    await spool.write(b"all")
    await spool.end()
    await spool.write(b" and more")
    assert content(await spool.complete(5)) == b"all"
