"""One upload on its own."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from protocol.errors import ErrorCode
from protocol.shapes import Actor
from server.assets import Disk
from server.upload import Claim, Refused, Upload, claim_path, forget

MEI = Actor(id="mei", name="Mei")


@pytest.fixture
def disk():
    threads = Disk()
    yield threads
    threads.close()


def upload(tmp_path, disk, max_bytes: int = 10**6, **claim) -> Upload:
    said = Claim(asset="a1", room="r", by=MEI, name="x", **claim)
    return Upload(said, tmp_path / "uploads" / "a1", disk, max_bytes)


class Peer:
    def __init__(self) -> None:
        self.grants: list[tuple[int, int]] = []

    def granted(self, received: int, credit: int) -> None:
        self.grants.append((received, credit))


async def test_bytes_are_written_in_order_and_credit_follows_the_disk(tmp_path, disk):
    one, peer = upload(tmp_path, disk), Peer()
    one.peer = peer
    await one.prepare()
    receiving = asyncio.create_task(one.receive_all(idle_s=5))
    for number in range(50):
        one.take(bytes([number]) * 100)
        await asyncio.sleep(0)
    one.finish()
    whole = b"".join(bytes([n]) * 100 for n in range(50))
    assert await receiving == hashlib.sha256(whole).hexdigest()
    assert one.path.read_bytes() == whole
    assert sum(credit for _, credit in peer.grants) == 5_000 == peer.grants[-1][0]


async def test_what_an_earlier_run_left_is_taken_up(tmp_path, disk):
    first = upload(tmp_path, disk)
    await first.prepare()
    first.take(b"hello ")
    first.finish()
    await first.receive_all(idle_s=5)
    second = upload(tmp_path, disk)
    await second.prepare()
    assert second.received == second.accepted == 6
    second.take(b"world")
    second.finish()
    assert await second.receive_all(5) == hashlib.sha256(b"hello world").hexdigest()


async def test_a_write_that_failed_half_way_is_written_over(tmp_path, disk):
    one = upload(tmp_path, disk)
    await one.prepare()
    one.path.write_bytes(b"torn rest of a write that the hash never saw")
    one.take(b"right")
    one.finish()
    assert await one.receive_all(5) == hashlib.sha256(b"right").hexdigest()
    assert one.path.read_bytes() == b"right"


@pytest.mark.parametrize(
    ("claim", "content", "code"),
    [
        ({"size": 4}, b"12345", ErrorCode.SIZE_MISMATCH),
        ({"size": 6}, b"12345", ErrorCode.SIZE_MISMATCH),
        ({"sha256": "0" * 64}, b"12345", ErrorCode.HASH_MISMATCH),
        ({}, b"x" * 101, ErrorCode.MEDIA_TOO_BIG),
    ],
)
async def test_what_was_claimed_must_be_true(tmp_path, disk, claim, content, code):
    one = upload(tmp_path, disk, max_bytes=100, **claim)
    await one.prepare()
    one.take(content)
    one.finish()
    with pytest.raises(Refused) as caught:
        await one.receive_all(5)
    assert (caught.value.code, caught.value.is_final) == (code, True)


async def test_an_upload_that_nobody_sends_is_abandoned(tmp_path, disk):
    one = upload(tmp_path, disk)
    await one.prepare()
    with pytest.raises(Refused) as caught:
        await one.receive_all(idle_s=0.05)
    assert caught.value.code == ErrorCode.UPLOAD_ABANDONED


async def test_a_disk_that_fails_leaves_the_upload_to_be_gone_on_with(tmp_path, disk):
    one = upload(tmp_path, disk)
    await one.prepare()
    one.path.unlink()
    one.path.mkdir()
    one.take(b"x")
    with pytest.raises(Refused) as caught:
        await one.receive_all(5)
    assert (caught.value.code, caught.value.is_final) == (ErrorCode.UNAVAILABLE, False)


async def test_a_forgotten_upload_leaves_nothing(tmp_path, disk):
    one = upload(tmp_path, disk)
    await one.prepare()
    assert claim_path(one.path).exists()
    forget(one.path)
    forget(one.path)
    assert list(one.path.parent.iterdir()) == []
