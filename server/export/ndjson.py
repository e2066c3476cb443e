"""The room's log as it is: one event a line, the very bytes that went to every socket.

What the model made has `"kind":"model"` in its `actor`. Nothing is added and nothing left out, so
whoever folds the lines gets the room's state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from server.log import Gap, History, Log, LogUnavailable

PAGE_EVENTS = 1_000
PAGE_BYTES = 1024 * 1024


async def pages(log: Log, room: str) -> AsyncIterator[bytes]:
    """The events up to the head at the beginning, in order, some lines at a time.

    Raises `LogUnavailable` when they cannot be given whole.
    """
    head = await log.head(room)
    seq = 0
    while seq < head.seq:
        history = await log.page(
            room, head.epoch, seq, max_events=PAGE_EVENTS, max_bytes=PAGE_BYTES
        )
        if isinstance(history, Gap) or not history.events:
            raise LogUnavailable(f"what follows event {seq} cannot be read whole")
        yield _lines(history, head.seq)
        seq = history.events[-1].event.seq


def _lines(history: History, last: int) -> bytes:
    frames = (each.frame for each in history.events if each.event.seq <= last)
    return b"".join(frame + b"\n" for frame in frames)
