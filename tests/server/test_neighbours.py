"""Several processes serve one room as one would."""

from __future__ import annotations

import asyncio

import httpx

from engine import api
from tests.support.scripted_engine import ScriptedEngine


def shown(client, kind: str) -> list[dict]:
    return [message for message in client.heard if message["type"] == kind]


async def test_R21_two_people_at_two_processes_see_the_same_in_the_same_order(nodes):
    one, two = await nodes(ScriptedEngine(), ScriptedEngine())
    mei, wu = await one.join("Mei"), await two.join("Wu")

    async def talk(client, name) -> None:
        for number in range(60):
            assert (await client.comment(f"{name}{number}"))["type"] == "ack"

    await asyncio.gather(talk(mei, "m"), talk(wu, "w"))
    for client in (mei, wu):
        await client.until(lambda client=client: client.seqs()[-1:] == [120])
        assert client.seqs() == list(range(1, 121))
    assert mei.events() == wu.events()
    late = await two.join("Late")
    assert late.welcome["head"] == 120


async def test_many_acts_at_once_at_two_processes_are_numbered_without_holes(nodes):
    one, two = await nodes(ScriptedEngine(), ScriptedEngine())
    clients = [await server.join(f"P{n}") for n in range(4) for server in (one, two)]

    async def talk(number, client) -> None:
        for act in range(20):
            await client.say(
                type="op",
                op_id=f"{number}-{act}",
                op={"type": "comment.add", "id": f"{number}-{act}", "text": "x"},
            )
        for act in range(20):
            assert (await client.answer(f"{number}-{act}"))["type"] == "ack"

    await asyncio.gather(*(talk(number, client) for number, client in enumerate(clients)))
    for client in clients:
        await client.until(lambda client=client: client.seqs()[-1:] == [160])
        assert client.seqs() == list(range(1, 161))
    for number in range(8):
        own = [e["id"] for e in clients[0].events() if e["id"].startswith(f"{number}-")]
        assert own == [f"{number}-{act}" for act in range(20)], "each in the order of its sending"


async def test_an_act_sent_again_to_another_process_has_its_first_number(nodes):
    one, two = await nodes(ScriptedEngine(), ScriptedEngine())
    identity = {"session": "session-of-mei-0001"}
    first = await (await one.join("Mei", **identity)).comment("c1")
    again = await (await two.join("Mei", **identity)).comment("c1")
    assert again["seq"] == first["seq"]


async def test_a_client_that_heard_more_elsewhere_resumes_without_going_back(nodes):
    one, two = await nodes(ScriptedEngine(), ScriptedEngine())
    wu = await two.join("Wu")
    mei = await one.join("Mei", session="session-of-mei-0001")
    for number in range(5):
        await mei.comment(f"c{number}")
        resume = {"epoch": mei.welcome["epoch"], "seq": number + 1}
        back = await two.join("Mei", session=f"another-of-mei-{number:04}", resume=resume)
        assert back.welcome.get("snapshot") is None
    await wu.hear("comment.add", id="c4")


async def test_R58_a_newer_socket_at_another_process_takes_over(nodes):
    one, two = await nodes(ScriptedEngine(), ScriptedEngine())
    older = await one.join("Mei", session="session-of-mei-0001")
    await two.join("Mei", session="session-of-mei-0001")
    assert await older.closed() == 4409


async def test_R20_people_at_other_processes_are_here_once_and_gone_once(nodes):
    one, two = await nodes(ScriptedEngine(), ScriptedEngine(), blip_s=0.1)
    mei = await one.join("Mei")
    wu = await two.join("Wu")
    await mei.hear("presence")
    await wu.until(lambda: len(wu.welcome["people"]) == 2 or shown(wu, "presence"))
    late = await one.join("Late")
    assert {person["name"] for person in late.welcome["people"]} == {"Mei", "Wu", "Late"}
    who = wu.welcome["participant"]
    await wu.close()
    await mei.hear("presence.gone", participant=who)
    await asyncio.sleep(1.2)
    assert len(shown(mei, "presence.gone")) == 1


async def test_a_turn_is_answered_by_one_process_heard_by_all_and_cancelled_from_anywhere(nodes):
    engines = [ScriptedEngine(), ScriptedEngine()]
    one, two = await nodes(*engines)
    mei, wu = await one.join("Mei"), await two.join("Wu")
    engines[0].says("t1", "half an answer", done=False)
    await mei.say(type="ask", turn="t1", text="?")
    await wu.hear("turn.delta", turn="t1")
    await wu.say(type="cancel", turn="t1")
    cancelled = await mei.hear("turn.cancelled", turn="t1")
    assert cancelled["actor"]["name"] == "Wu"
    assert [turn.id for turn in engines[0].asked] == ["t1"] and not engines[1].asked
    await wu.hear("turn.cancelled", turn="t1")
    await wu.say(type="cancel", turn="t1")
    assert (await wu.hear("error"))["code"] == "turn_unknown"


async def test_a_question_waits_for_the_answer_that_another_process_gives(nodes):
    engines = [ScriptedEngine(), ScriptedEngine()]
    one, two = await nodes(*engines)
    mei, wu = await one.join("Mei"), await two.join("Wu")
    engines[0].says("t1", "first", done=False)
    await mei.say(type="ask", turn="t1", text="one?")
    await wu.hear("turn.delta", turn="t1")
    engines[1].says("t2", "second")
    await wu.say(type="ask", turn="t2", text="two?")
    await mei.hear("turn.started", turn="t2")
    assert not engines[1].asked
    engines[0].script("t1").put_nowait(None)
    await mei.hear("turn.failed", turn="t1")
    await mei.hear("turn.done", turn="t2")
    texts = [message.text for message in engines[1].asked[0].messages]
    assert texts == ["one?", "first", "two?"]


async def test_an_asset_committed_at_one_process_is_served_by_the_other_and_looked_at_once(nodes):
    engines = [ScriptedEngine(), ScriptedEngine()]
    one, two = await nodes(*engines)
    mei, wu = await one.join("Mei"), await two.join("Wu")
    closed = await mei.upload(b"some bytes", name="a.bin")
    await wu.hear("asset.committed", asset=closed["asset"])
    # What is not looked at may be a file that says whom it shows, and is kept back.
    engines[0].look(closed["asset"]).put_nowait(
        api.Detected(media=closed["asset"], media_type="image/png", width=1, height=1)
    )
    await wu.hear("asset.detected", asset=closed["asset"])
    media = wu.welcome["media"]
    url = f"{two.base}{media['base']}/{closed['asset']}/original"
    async with httpx.AsyncClient() as http:
        answer = await http.get(url, params={"ticket": media["ticket"]})
    assert (answer.status_code, answer.content) == (200, b"some bytes")
    await asyncio.sleep(0.3)
    await two.join("Late")
    assert len(engines[0].opened) == 1 and not engines[1].opened


async def test_R57_an_upload_broken_at_one_process_is_gone_on_with_at_the_other(nodes):
    one, two = await nodes(ScriptedEngine(), ScriptedEngine())
    content = bytes(range(256)) * 1_000
    mei = await one.join("Mei", session="session-of-mei-0001")
    await mei.say(type="stream.open", stream=1, name="a.bin", size=len(content))
    opened = await mei.hear("stream.opened")
    await mei.send_chunks(content[:131_072])
    await mei.hear("stream.credit", received=131_072)
    mei.cut()
    back = await two.join("Mei", session="session-of-mei-0001")
    closed = await back.upload(content, name="a.bin", asset=opened["asset"])
    assert closed.get("code") is None and closed["asset"] == opened["asset"]
    assert (await back.hear("stream.opened"))["offset"] == 131_072
    await back.hear("asset.committed", asset=opened["asset"])
