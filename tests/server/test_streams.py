"""Upload streams as a client meets them: credit, order, ends."""

from __future__ import annotations

import hashlib
import random

from protocol.media import MediaFrame

CONTENT = random.Random(5).randbytes(3_000_000)


async def test_an_upload_within_its_credit_is_committed(start):
    server = await start(credit_bytes=256 * 1024)
    mei = await server.join()
    digest = hashlib.sha256(CONTENT).hexdigest()
    closed = await mei.upload(CONTENT, sha256=digest, name="a.bin")
    assert closed["sha256"] == digest and "code" not in closed
    committed = await mei.hear("asset.committed")
    assert (committed["size"], committed["sha256"]) == (len(CONTENT), digest)
    assert [e["type"] for e in mei.events()][:2] == ["asset.opened", "asset.committed"]


async def test_several_uploads_at_once_do_not_mix(server):
    mei = await server.join()
    for stream in (1, 2):
        await mei.say(type="stream.open", stream=stream)
        await mei.hear("stream.opened", stream=stream)
    for number in range(4):
        for stream in (1, 2):
            frame = MediaFrame(stream, number, bytes([stream]) * 1_000)
            await mei.socket.send(frame.serialize())
    for stream in (1, 2):
        await mei.say(type="stream.close", stream=stream)
        closed = await mei.hear("stream.closed", stream=stream)
        assert closed["sha256"] == hashlib.sha256(bytes([stream]) * 4_000).hexdigest()


async def test_a_chunk_beyond_the_credit_closes_the_stream_and_not_the_socket(start):
    server = await start(credit_bytes=1_000)
    mei = await server.join()
    await mei.say(type="stream.open", stream=1)
    opened = await mei.hear("stream.opened")
    await mei.socket.send(MediaFrame(1, 0, b"x" * 1_001).serialize())
    await mei.socket.send(MediaFrame(1, 1, b"x").serialize())
    closed = await mei.hear("stream.closed")
    assert (closed["code"], closed["asset"]) == ("stream_overdrawn", opened["asset"])
    assert (await mei.comment("c1"))["type"] == "ack"
    assert not [m for m in mei.heard if m["type"] == "error"], "told once, not once a chunk"


async def test_a_missing_chunk_closes_the_stream(server):
    mei = await server.join()
    await mei.say(type="stream.open", stream=1)
    await mei.hear("stream.opened")
    await mei.socket.send(MediaFrame(1, 1, b"x").serialize())
    assert (await mei.hear("stream.closed"))["code"] == "stream_gap"


async def test_a_chunk_for_a_closed_stream_is_a_coded_error(server):
    mei = await server.join()
    await mei.upload(b"whole")
    await mei.socket.send(MediaFrame(1, 1, b"late").serialize())
    error = await mei.hear("error")
    assert (error["code"], error["ref"], error.get("fatal", False)) == (
        "stream_unknown",
        "1",
        False,
    )
    await mei.say(type="stream.close", stream=9)
    assert (await mei.hear("error", ref="9"))["code"] == "stream_unknown"
    assert (await mei.comment("c1"))["type"] == "ack"


async def test_wrong_size_and_wrong_hash_fail_the_asset_with_their_codes(server):
    mei = await server.join()
    wrong = await mei.upload(b"bytes", stream=1, sha256="0" * 64)
    short = await mei.upload(b"bytes", stream=2, size=6)
    long = await mei.upload(b"bytes", stream=3, size=4)
    assert [each["code"] for each in (wrong, short, long)] == [
        "hash_mismatch",
        "size_mismatch",
        "size_mismatch",
    ]
    for closed in (wrong, short, long):
        failed = await mei.hear("asset.failed", asset=closed["asset"])
        assert failed["code"] == closed["code"]


async def test_an_upload_over_the_limit_is_refused_before_its_bytes_and_while_they_come(start):
    server = await start(max_asset_bytes=1_000)
    mei = await server.join()
    assert (await mei.upload(b"x", stream=1, size=1_001))["code"] == "media_too_big"
    await mei.say(type="stream.open", stream=2)
    await mei.hear("stream.opened")
    await mei.socket.send(MediaFrame(2, 0, b"x" * 1_001).serialize())
    assert (await mei.hear("stream.closed", stream=2))["code"] == "media_too_big"


async def test_streams_are_few_and_each_number_is_one(start):
    server = await start(max_streams=2)
    mei = await server.join()
    for stream in (1, 1, 2, 3):
        await mei.say(type="stream.open", stream=stream)
    assert (await mei.hear("error", ref="1"))["code"] == "stream_exists"
    assert (await mei.hear("error", ref="3"))["code"] == "stream_limit"


async def test_an_upload_that_is_given_up_fails_its_asset(server):
    mei = await server.join()
    await mei.say(type="stream.open", stream=1)
    opened = await mei.hear("stream.opened")
    await mei.say(type="stream.abort", stream=1)
    assert (await mei.hear("stream.closed"))["code"] == "upload_abandoned"
    failed = await mei.hear("asset.failed", asset=opened["asset"])
    assert failed["code"] == "upload_abandoned"


async def test_L17_open_and_close_in_one_breath_make_an_empty_asset(server):
    mei = await server.join()
    await mei.say(type="stream.open", stream=1)
    await mei.say(type="stream.close", stream=1)
    closed = await mei.hear("stream.closed")
    assert closed["sha256"] == hashlib.sha256(b"").hexdigest()


async def test_a_room_holds_only_so_many_assets_and_uploads(start):
    server = await start(room_assets=2, room_uploads=1)
    mei = await server.join()
    await mei.say(type="stream.open", stream=1)
    await mei.hear("stream.opened")
    assert (await mei.upload(b"x", stream=2))["code"] == "stream_limit"
    await mei.say(type="stream.close", stream=1)
    await mei.hear("stream.closed", stream=1)
    assert "code" not in await mei.upload(b"x", stream=3)
    assert (await mei.upload(b"x", stream=4))["code"] == "room_full"


async def test_bytes_after_the_close_are_refused_and_are_no_part_of_the_asset(server):
    mei = await server.join()
    await mei.say(type="stream.open", stream=1)
    await mei.hear("stream.opened")
    await mei.socket.send(MediaFrame(1, 0, b"before").serialize())
    await mei.say(type="stream.close", stream=1)
    await mei.socket.send(MediaFrame(1, 1, b"after").serialize())
    closed = await mei.hear("stream.closed")
    assert closed["sha256"] == hashlib.sha256(b"before").hexdigest()
    assert (await mei.hear("error"))["code"] == "stream_unknown"
