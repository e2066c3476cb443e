"""A single process needs no leases, and so gets every one."""

from __future__ import annotations

from server.leases import OwnLeases


async def test_who_is_alone_takes_what_it_wants():
    leases = OwnLeases()
    assert not await leases.is_taken("r", "turn:t")
    assert await leases.take("r", "turn:t") and await leases.take("r", "turn:t")
    assert await leases.is_taken("r", "turn:t")
    await leases.let_go("r", "turn:t")
    assert not await leases.is_taken("r", "turn:t")
