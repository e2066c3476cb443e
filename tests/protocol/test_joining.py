"""Addresses, pauses and what ends a try for good."""

import pytest

from protocol import joining


@pytest.mark.parametrize(
    "url, room, expected",
    [
        ("ws://127.0.0.1:8760", "ward-3", "ws://127.0.0.1:8760/v1/rooms/ward-3"),
        ("http://host:1/", "ward-3", "ws://host:1/v1/rooms/ward-3"),
        ("https://host/base", "a:b", "wss://host/base/v1/rooms/a:b"),
        ("wss://host", "a/b", "wss://host/v1/rooms/a%2Fb"),
        ("wss://host/v1/rooms/ward-3", None, "wss://host/v1/rooms/ward-3"),
    ],
)
def test_a_room_has_one_address(url, room, expected):
    assert joining.socket_url(url, room) == expected


@pytest.mark.parametrize("url", ["host:8760", "ftp://host", "ws://", "", "ws://host/elsewhere"])
def test_an_address_that_is_none_is_the_callers_mistake(url):
    with pytest.raises(ValueError, match="address|names no room"):
        joining.socket_url(url, None)


def test_http_goes_to_the_sockets_host():
    assert joining.http_origin("wss://host:1/v1/rooms/x") == "https://host:1"
    assert joining.http_origin("ws://host/v1/rooms/x") == "http://host"


def test_r53_a_thousand_clients_do_not_come_back_at_once():
    pauses = [joining.pause_s(3, None, n / 1_000) for n in range(1_000)]
    assert min(pauses) == 0.0
    assert 3.9 < max(pauses) < 4.0


@pytest.mark.parametrize("attempt", range(0, 2_000, 100))
def test_r13_a_pause_never_exceeds_30_seconds_on_top_of_what_is_asked(attempt):
    assert joining.pause_s(attempt, None, 0.999) <= 30.0
    assert joining.pause_s(attempt, 5.0, 0.0) == 5.0


def test_r13_the_first_try_is_soon():
    assert joining.pause_s(0, None, 0.999) < 0.5


@pytest.mark.parametrize("status", [401, 403, 404, 426])
def test_a_refusal_is_final(status):
    assert joining.is_final_status(status)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_fault_is_not_final(status):
    assert not joining.is_final_status(status)


@pytest.mark.parametrize(
    "header, expected",
    [("3", 3.0), ("", None), (None, None), ("-1", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None)],
)
def test_retry_after_is_read_in_seconds(header, expected):
    assert joining.seconds(header) == expected
