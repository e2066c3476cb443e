"""Tokens, roles and tickets on their own."""

from __future__ import annotations

import time

import jwt
import pytest

from protocol.errors import ErrorCode, Forbidden, Unauthenticated
from protocol.messages import Hello
from server.auth import Auth, Holder, is_name, make_token

SECRET, KEY = "s" * 32, "k" * 32


def hello(token: str | None = None, **fields) -> Hello:
    return Hello(session="session-0123456789", client="t", token=token, **fields)


def good(**claims) -> str:
    claims = {"room": "r", "participant": "p", "name": "Mei", "role": "chair", **claims}
    claims.setdefault("expires_at", time.time() + 60)
    return make_token(SECRET, **claims)


def test_an_open_server_takes_people_by_their_word_and_tells_sessions_apart():
    auth = Auth(None, KEY, 60)
    mei = auth.admit(hello(name="Mei", department="Lab"), "r")
    assert (mei.name, mei.department, mei.role, mei.expires_at) == ("Mei", "Lab", "member", None)
    other = auth.admit(Hello(session="another-0123456789", client="t"), "r")
    assert other.participant != mei.participant and other.name == "Guest"
    assert "0123456789" not in mei.participant


def test_a_token_says_who_somebody_is_and_not_the_hello():
    identity = Auth(SECRET, KEY, 60).admit(hello(good(), name="Somebody else"), "r")
    assert (identity.participant, identity.name, identity.role) == ("p", "Mei", "chair")
    assert identity.expires_at is not None


@pytest.mark.parametrize(
    "token",
    [
        None,
        "",
        "a.b.c",
        jwt.encode({"sub": "p", "room": "r", "exp": 9**10}, "x" * 32, algorithm="HS256"),
        jwt.encode({"sub": "p", "room": "r", "aud": "consilium-room"}, SECRET, algorithm="HS256"),
        jwt.encode({"sub": "p", "room": "r", "exp": 9**10, "aud": "consilium-room"}, "", "none"),
        good(role="king"),
        good(participant="no spaces"),
    ],
)
def test_what_is_not_signed_and_whole_is_not_a_token(token):
    with pytest.raises(Unauthenticated):
        Auth(SECRET, KEY, 60).admit(hello(token), "r")


def test_an_old_token_has_its_own_code():
    with pytest.raises(Unauthenticated) as caught:
        Auth(SECRET, KEY, 60).admit(hello(good(expires_at=time.time() - 5)), "r")
    assert caught.value.code == ErrorCode.TOKEN_EXPIRED


def test_a_refresh_is_for_the_same_person_and_room():
    auth = Auth(SECRET, KEY, 60)
    mei = auth.admit(hello(good()), "r")
    assert auth.refresh(good(role="member"), mei, "r").role == "member"
    with pytest.raises(Forbidden):
        auth.refresh(good(participant="wu"), mei, "r")
    with pytest.raises(Forbidden):
        auth.refresh(good(room="s"), mei, "r")


def test_a_ticket_opens_the_pictures_of_its_room_alone():
    auth = Auth(SECRET, KEY, 60)
    ticket, expires_at = auth.ticket("p", "r", "chair", time.time())
    assert auth.check_ticket(ticket, "r") == Holder("p", "chair") and expires_at > time.time()
    with pytest.raises(Forbidden):
        auth.check_ticket(ticket, "s")
    with pytest.raises(Unauthenticated):
        auth.check_ticket(good(), "r")


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "x\n", "a/b", "a b", "x" * 65, "é", "x\0"])
def test_what_would_be_a_path_or_a_second_line_is_no_name(name):
    assert not is_name(name)


@pytest.mark.parametrize("name", ["x", "ward-7", "a.b:c_d", "x" * 64, "-"])
def test_what_stands_safely_in_an_address_is_a_name(name):
    assert is_name(name)
