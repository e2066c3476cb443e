"""What a participant may do, what it is answered, and what survives a lost socket."""

from __future__ import annotations

import asyncio
import time

import pytest

from server.auth import make_token

SECRET = "s" * 32


def token(room: str = "ward-7", participant: str = "p-mei", **claims) -> str:
    claims.setdefault("expires_at", time.time() + 60)
    return make_token(SECRET, room=room, participant=participant, name="Mei", **claims)


BOX = {"type": "rectangle", "x": 1, "y": 2, "width": 3, "height": 4}


def mark(mark_id: str, asset: str) -> dict:
    return {
        "type": "annotation.put",
        "annotation": {"id": mark_id, "target": {"asset": asset}, "shape": BOX},
    }


async def test_an_op_is_acknowledged_and_everybody_hears_it(server):
    mei, wu = await server.join("Mei"), await server.join("Wu")
    ack = await mei.comment("c1", "hello")
    heard = await wu.hear("comment.add")
    assert (ack["type"], ack["seq"], heard["seq"], heard["text"]) == ("ack", 1, 1, "hello")
    assert heard["actor"]["name"] == "Mei"


async def test_an_op_that_is_sent_again_after_a_lost_socket_is_numbered_once(server):
    mei = await server.join("Mei", session="session-of-mei-0001")
    first = await mei.comment("c1")
    mei.cut()
    back = await server.join("Mei", session="session-of-mei-0001")
    assert await back.comment("c1") == first


async def test_R60_an_op_for_an_asset_of_another_room_is_refused(server):
    elsewhere = await server.join("Wu", room="elsewhere")
    closed = await elsewhere.upload(b"bytes")
    assert closed.get("code") is None
    mei = await server.join("Mei")
    nack = await mei.op("o1", **mark("m1", closed["asset"]))
    assert (nack["type"], nack["code"]) == ("nack", "asset_unknown")


async def test_R65_an_op_needs_the_commit_of_its_asset(server):
    mei = await server.join("Mei")
    await mei.say(type="stream.open", stream=1, size=10)
    opened = await mei.hear("stream.opened")
    await mei.hear("asset.opened")
    nack = await mei.op("o1", **mark("m1", opened["asset"]))
    assert nack["code"] == "asset_not_ready"


async def test_R23_resume_works_before_anything_happened(server):
    mei = await server.join("Mei", session="session-of-mei-0001")
    epoch = mei.welcome["epoch"]
    mei.cut()
    resume = {"epoch": epoch, "seq": 0}
    back = await server.join("Mei", session="session-of-mei-0001", resume=resume)
    assert back.welcome.get("snapshot") is None


async def test_R22_a_client_that_comes_back_twice_gets_what_it_missed_once(server):
    wu = await server.join("Wu")
    for number in range(10):
        await wu.comment(f"c{number}")
    epoch = wu.welcome["epoch"]
    for seen in (3, 3, 7, 10):
        back = await server.join("Mei", session="s" * 20, resume={"epoch": epoch, "seq": seen})
        assert back.welcome.get("snapshot") is None
        await wu.comment(f"after-{seen}-{len(wu.heard)}")
        last = wu.seqs()[-1] if wu.seqs() else 0
        await back.until(lambda b=back, n=last: b.seqs()[-1:] >= [n])
        assert back.seqs() == list(range(seen + 1, back.seqs()[-1] + 1))


async def test_R26_a_resumed_session_evicts_its_older_socket_each_time(server):
    older = await server.join("Mei", session="session-of-mei-0001")
    for _ in range(3):
        newer = await server.join("Mei", session="session-of-mei-0001")
        assert (await older.hear("error"))["code"] == "replaced"
        assert await older.closed() == 4409
        older = newer
    people = (await server.join("Wu")).welcome["people"]
    assert [person["name"] for person in people].count("Mei") == 1


async def test_R52_a_blip_is_not_shown(start):
    server = await start(blip_s=0.5)
    wu = await server.join("Wu")
    mei = await server.join("Mei", session="session-of-mei-0001")
    await wu.hear("presence")
    mei.cut()
    back = await server.join("Mei", session="session-of-mei-0001")
    await asyncio.sleep(1.2)
    assert not [m for m in wu.heard if m["type"] == "presence.gone"]
    await back.close()
    await wu.hear("presence.gone")


async def test_presence_is_shown_to_the_others_and_has_no_number(server):
    mei, wu = await server.join("Mei"), await server.join("Wu")
    await mei.say(type="presence", x=10, y=20, typing=True)
    seen = await wu.until(
        lambda: [m for m in wu.heard if m["type"] == "presence" and "x" in m["person"]]
    )
    assert (seen[0]["person"]["x"], seen[0]["person"]["typing"]) == (10, True)
    assert wu.seqs() == []
    assert not [m for m in mei.heard if m["type"] == "presence" and "x" in m["person"]]


async def test_messages_beyond_the_rate_are_refused_one_by_one(start):
    server = await start(messages_per_s=1, messages_burst=5)
    mei = await server.join("Mei")
    answers = [await mei.comment(f"c{number}") for number in range(8)]
    assert [answer["type"] for answer in answers] == ["ack"] * 5 + ["nack"] * 3
    assert answers[-1]["code"] == "rate_limited" and answers[-1]["retry_after"] > 0


# -- tokens and roles ---------------------------------------------------------------------------


async def refused(server, room: str = "ward-7", **hello) -> tuple[str, int]:
    client = await server.open(room)
    await client.say(type="hello", session="s" * 20, client="t", **hello)
    error = await client.hear("error")
    assert error["fatal"]
    return error["code"], await client.closed()


async def test_L16_a_bad_token_is_told_by_a_code_that_says_do_not_come_back(start):
    server = await start(secret=SECRET)
    assert await refused(server) == ("unauthenticated", 4401)
    assert await refused(server, token="rubbish") == ("unauthenticated", 4401)
    late = token(not_before=time.time() + 60)
    assert await refused(server, token=late) == ("unauthenticated", 4401)
    old = token(expires_at=time.time() - 60)
    assert await refused(server, token=old) == ("token_expired", 4401)
    other = token(room="elsewhere")
    assert await refused(server, token=other) == ("forbidden", 4403)
    assert (await server.join("Mei", token=token())).welcome["participant"] == "p-mei"


async def test_a_ticket_for_pictures_is_no_room_token(start):
    server = await start(secret=SECRET)
    ticket = (await server.join("Mei", token=token())).welcome["media"]["ticket"]
    assert await refused(server, token=ticket) == ("unauthenticated", 4401)


async def test_R46_the_socket_ends_with_its_token(start):
    server = await start(secret=SECRET)
    mei = await server.join("Mei", token=token(expires_at=time.time() + 2))
    assert (await mei.hear("error"))["code"] == "token_expired"
    assert await mei.closed() == 4401


async def test_R42_a_refreshed_token_lets_the_socket_live_and_a_bad_one_ends_it(start):
    server = await start(secret=SECRET)
    mei = await server.join("Mei", token=token(expires_at=time.time() + 2))
    await mei.say(type="refresh", token=token())
    await mei.hear("access")
    await asyncio.sleep(2.5)
    assert (await mei.comment("c1"))["type"] == "ack"
    await mei.say(type="refresh", token=token(participant="somebody-else"))
    assert (await mei.hear("error"))["code"] == "forbidden"
    assert await mei.closed() == 4403


@pytest.mark.parametrize("role", ["observer", "auditor"])
async def test_R48_who_may_only_watch_is_refused_on_the_server(start, role):
    server = await start(secret=SECRET)
    watcher = await server.join("Watcher", token=token(role=role, participant="w"))
    assert (await watcher.comment("c1"))["code"] == "forbidden"
    await watcher.say(type="ask", turn="t1", text="?")
    assert (await watcher.answer("t1"))["code"] == "forbidden"
    await watcher.say(type="stream.open", stream=1)
    assert (await watcher.hear("error", ref="1"))["code"] == "forbidden"
    await watcher.say(type="cancel", turn="t1")
    assert (await watcher.hear("error", ref="t1"))["code"] == "forbidden"
    mei = await server.join("Mei", token=token())
    await mei.comment("c2")
    assert await watcher.hear("comment.add")


async def test_a_newer_session_with_anothers_id_does_not_evict_them(start):
    server = await start(secret=SECRET)
    mei = await server.join("Mei", token=token(), session="shared-session-0001")
    await server.join("Wu", token=token(participant="p-wu"), session="shared-session-0001")
    assert (await mei.comment("c1"))["type"] == "ack"
