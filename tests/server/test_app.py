"""The composition root and the process around it."""

from __future__ import annotations

import time

import httpx
import pytest

from engine.client import EngineClient
from server.app import Server, quiet_uvicorn
from server.config import BadSettings, Settings
from server.serving import bound_socket, claim_folder
from tests.support.product import Product


def test_trap5_R56_the_settings_of_the_socket_layer_are_said_once(tmp_path):
    settings = Settings(folder=tmp_path)
    server = Server(settings, EngineClient(tmp_path / "none"))
    config = quiet_uvicorn(server).config
    assert config.ws_max_size == 8 * 1024 * 1024
    assert config.ws_per_message_deflate is False
    assert config.ws_ping_interval is None


def test_a_port_that_is_taken_is_an_error_at_once():
    taken = bound_socket("127.0.0.1", 0)
    with pytest.raises(OSError):
        bound_socket("127.0.0.1", taken.getsockname()[1])
    taken.close()


def test_R21_a_folder_belongs_to_one_server_at_a_time(tmp_path):
    with claim_folder(tmp_path):
        with pytest.raises(BadSettings, match="another server"):
            claim_folder(tmp_path)
    claim_folder(tmp_path).close()


def test_the_key_of_the_tickets_outlives_a_restart_and_is_nobody_elses(tmp_path):
    for _ in range(2):
        Server(Settings(folder=tmp_path), EngineClient(tmp_path / "none"))
        key = tmp_path / "ticket.key"
        assert len(key.read_text()) == 64 and key.stat().st_mode & 0o077 == 0


async def test_a_room_with_an_impossible_name_is_refused(server):
    client = await server.open("a%20room")
    assert (await client.hear("error"))["code"] == "forbidden"
    assert await client.closed() == 4403


async def test_nothing_of_a_persons_words_is_in_the_logs(server, caplog, capsys):
    mei = await server.join("Mei Secretname")
    await mei.comment("c1", "HbA1c of patient Secretword")
    await mei.say(type="ask", turn="t1", text="Secretword?")
    await mei.hear("turn.failed")
    mei.cut()
    output = capsys.readouterr()
    assert "Secret" not in caplog.text + output.out + output.err


@pytest.mark.fault
def test_the_process_serves_within_two_seconds_and_leaves_when_told(tmp_path):
    product = Product(tmp_path / "house")
    began = time.monotonic()
    product.start(ready=False)
    try:
        assert time.monotonic() - began < 4  # 2 s on a quiet machine
        assert httpx.get(product.base + "/healthz").status_code == 200
    finally:
        began = time.monotonic()
        product.stop()
    assert time.monotonic() - began < 10
