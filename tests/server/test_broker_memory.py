"""What the broker of a single process does beyond the contract: nothing."""

from __future__ import annotations

from server.broker_memory import MemoryBroker
from tests.support.ears import Ears


async def test_who_is_alone_misses_nothing_and_is_never_down():
    broker, ears = MemoryBroker(), Ears()
    await broker.subscribe("r", ears)
    broker.tell("r", b"note")
    assert broker.is_up and not (ears.notes or ears.frames or ears.gaps)
