"""Who may enter a room and what they may do there: tokens, roles, tickets."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

import jwt

from protocol.errors import ErrorCode, Forbidden, Unauthenticated
from protocol.messages import Hello
from protocol.shapes import Actor, Role

_NAME = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9_.:-]{0,63}")

_ROLES: tuple[Role, ...] = ("chair", "member", "observer", "camera", "auditor")
_WRITERS = frozenset({"chair", "member"})
_UPLOADERS = frozenset({"chair", "member", "camera"})
_TICKET_AUDIENCE = "consilium-media"
_TOKEN_AUDIENCE = "consilium-room"


def is_name(text: str) -> bool:
    """Whether a room or a participant may have this name: it stands in addresses and paths."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a connection speaks for. `expires_at` is Unix seconds; None means never."""

    participant: str
    name: str
    department: str
    role: Role
    expires_at: float | None = None

    @property
    def actor(self) -> Actor:
        """The person as events name them."""
        return Actor(id=self.participant, name=self.name, department=self.department)

    @property
    def may_write(self) -> bool:
        """Whether ops and questions are taken."""
        return self.role in _WRITERS

    @property
    def may_upload(self) -> bool:
        """Whether uploads are taken."""
        return self.role in _UPLOADERS


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose ticket it is, and their role when it was signed."""

    participant: str
    role: Role


class Auth:
    """Checks room tokens and signs tickets.

    With `secret` None everybody may enter as who they say they are. `ticket_key` signs the
    tickets for pictures and outlives a restart, so that links go on working.
    """

    def __init__(self, secret: str | None, ticket_key: str, ticket_s: float) -> None:
        self._secret = secret
        self._ticket_key = ticket_key
        self._ticket_s = ticket_s

    def admit(self, hello: Hello, room: str) -> Identity:
        """Say who this is; raises `Unauthenticated` or `Forbidden`."""
        if self._secret is None:
            digest = hashlib.sha256(hello.session.encode()).hexdigest()
            return Identity(f"p-{digest[:16]}", hello.name or "Guest", hello.department, "member")
        return self._read(hello.token, room)

    def refresh(self, token: str, identity: Identity, room: str) -> Identity:
        """Take a newer token of the same participant; raises as `admit` does."""
        if self._secret is None:
            return identity
        renewed = self._read(token, room)
        if renewed.participant != identity.participant:
            raise Forbidden("the token is another participant's")
        return renewed

    def _read(self, token: str | None, room: str) -> Identity:
        if not token:
            raise Unauthenticated("this server asks for a room token")
        assert self._secret is not None, "tokens are read only where a secret is set"
        claims = _decode(token, self._secret, _TOKEN_AUDIENCE)
        if claims["room"] != room:
            raise Forbidden("the token is for another room")
        participant, role = claims["sub"], claims.get("role", "member")
        if role not in _ROLES or not is_name(participant):
            raise Unauthenticated("the token's role or participant is not valid")
        name = str(claims.get("name") or participant)[:100]
        department = str(claims.get("department", ""))[:100]
        return Identity(participant, name, department, role, float(claims["exp"]))

    def ticket(self, participant: str, room: str, role: Role, now: float) -> tuple[str, float]:
        """Sign a ticket for a room's pictures; returns it and its end in Unix seconds."""
        expires_at = now + self._ticket_s
        claims = {"sub": participant, "room": room, "role": role, "exp": int(expires_at)}
        return _encode(claims, self._ticket_key, _TICKET_AUDIENCE), expires_at

    def check_ticket(self, ticket: str | None, room: str) -> Holder:
        """Say whose ticket it is; raises `Unauthenticated` or `Forbidden`."""
        if not ticket:
            raise Unauthenticated("a ticket is needed")
        claims = _decode(ticket, self._ticket_key, _TICKET_AUDIENCE)
        if claims["room"] != room:
            raise Forbidden("the ticket is for another room")
        return Holder(str(claims["sub"]), claims.get("role", "member"))


def make_token(
    secret: str,
    *,
    room: str,
    participant: str,
    name: str,
    department: str = "",
    role: Role = "member",
    expires_at: float,
    not_before: float | None = None,
) -> str:
    """Sign a room token; times in Unix seconds."""
    claims: dict[str, Any] = {
        "sub": participant,
        "room": room,
        "name": name,
        "department": department,
        "role": role,
        "exp": int(expires_at),
    }
    if not_before is not None:
        claims["nbf"] = int(not_before)
    return _encode(claims, secret, _TOKEN_AUDIENCE)


def _encode(claims: dict[str, Any], key: str, audience: str) -> str:
    return jwt.encode({**claims, "aud": audience}, key, algorithm="HS256")


def _decode(token: str, key: str, audience: str) -> dict[str, Any]:
    # The audience keeps a ticket, which stands in links, from being used as a room token.
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=["HS256"],
            audience=audience,
            options={"require": ["exp", "sub", "room"]},
        )
    except jwt.ExpiredSignatureError:
        raise Unauthenticated("expired", code=ErrorCode.TOKEN_EXPIRED) from None
    except jwt.InvalidTokenError:
        # What exactly is wrong helps only somebody who forges tokens.
        raise Unauthenticated("the token is not valid") from None
    return claims
