"""Which pages may open a socket."""

from __future__ import annotations

import pytest

from protocol.errors import Forbidden
from server.origins import Origins


def check(origins: Origins, host: str, origin: str | None = None) -> bool:
    headers = {"host": host} | ({"origin": origin} if origin is not None else {})
    try:
        origins.check(headers)
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "origin", "is_let_in"),
    [
        ("127.0.0.1:8760", "http://127.0.0.1:8760", True),
        ("localhost:8760", "http://localhost:8760", True),
        ("[::1]:8760", "http://[::1]:8760", True),
        ("127.0.0.1:8760", None, True),
        ("127.0.0.1:8760", "http://127.0.0.1:9999", False),
        ("127.0.0.1:8760", "http://evil.example", False),
        ("127.0.0.1:8760", "null", False),
        ("evil.example:8760", "http://evil.example:8760", False),
        ("evil.example:8760", None, False),
        ("127.0.0.1:8760", "https://app.example/", True),
    ],
)
def test_an_open_server_answers_its_own_page_on_loopback_names(host, origin, is_let_in):
    origins = Origins(("https://app.example",), is_open=True)
    assert check(origins, host, origin) is is_let_in


def test_a_server_with_a_secret_may_have_any_name():
    origins = Origins((), is_open=False)
    assert check(origins, "consult.example", "https://consult.example")
    assert check(origins, "consult.example")
    assert not check(origins, "consult.example", "https://evil.example")
