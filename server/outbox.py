"""What waits to leave on one socket: three lanes, a byte budget, nothing but decisions.

    control   answers and heartbeats, first                    too much of it: `is_overrun`
    ordered   events by `seq`                                  over budget: dropped, `is_behind`
    lossy     presence and progress, newest of each key        at most `LOSSY_KEYS` keys

An outbox that is behind holds no events; its owner reads them from the log at the pace of the
client and calls `resume`. So a client that reads nothing costs the budget and no more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from protocol.codec import join

FRAME_BYTES = 64 * 1024
MAX_JOINED = 256
# Older than this, presence goes out with the next frame whatever else waits.
LOSSY_PATIENCE_S = 0.25
LOSSY_KEYS = 1_024


@dataclass(frozen=True, slots=True)
class _Lossy:
    frame: bytes
    since: float


class Outbox:
    """The queue of one connection; `budget_bytes` counts queued and in the transport."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._control: deque[bytes] = deque()
        self._control_bytes = 0
        self._ordered: deque[tuple[int, bytes]] = deque()
        self._ordered_bytes = 0
        self._lossy: dict[str, _Lossy] = {}
        self._lossy_bytes = 0
        self._transport_bytes = 0
        self._position = 0
        self._is_closed = False
        self._is_sending = False
        self.sent_seq = 0
        self.is_behind = False
        self.times_behind = 0

    @property
    def size_bytes(self) -> int:
        """All that is queued, without what the transport holds."""
        return self._control_bytes + self._ordered_bytes + self._lossy_bytes

    @property
    def position(self) -> int:
        """The last event that was queued or sent; the next one is `position + 1`."""
        return self._position

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (self._control or self._ordered or self._lossy)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and the transport took everything: the client keeps up."""
        return self.is_empty and not self._is_sending

    @property
    def has_ordered(self) -> bool:
        """Whether events wait."""
        return bool(self._ordered)

    @property
    def is_overrun(self) -> bool:
        """Whether answers alone are over the budget: the client asks and never reads."""
        return self._control_bytes > self._budget_bytes

    def measure(self, transport_bytes: int) -> None:
        """Say how much the transport holds that the peer has not taken."""
        self._transport_bytes = transport_bytes

    def start_at(self, seq: int, *, is_behind: bool) -> None:
        """Begin after event `seq`; when behind, what follows comes from the log."""
        self._drop_ordered()
        self._position = self.sent_seq = seq
        self.is_behind = is_behind

    def put_control(self, frame: bytes) -> None:
        """Queue an answer; see `is_overrun`."""
        self._control.append(frame)
        self._control_bytes += len(frame)

    def put_event(self, seq: int, frame: bytes) -> None:
        """Queue a live event. A repeated one is dropped; a gap or no room means `is_behind`."""
        if self.is_behind or self._is_closed or seq <= self._position:
            return
        if seq != self._position + 1 or not self._fits(len(frame)):
            self._fall_behind()
            return
        self._push(seq, frame)

    def put_from_log(self, seq: int, frame: bytes) -> bool:
        """Queue an event that was read from the log while behind; False when there is no room."""
        assert seq == self._position + 1, "the log is read without gaps"
        if self._is_closed or (self._ordered and not self._fits(len(frame))):
            return False
        self._push(seq, frame)
        return True

    def put_lossy(self, key: str, frame: bytes, now: float) -> None:
        """Queue a state that the next of its key replaces; beyond `LOSSY_KEYS` it is dropped.

        Kept also while behind: who left in the meantime must not stay on the client's screen.
        """
        if (old := self._lossy.pop(key, None)) is not None:
            self._lossy_bytes -= len(old.frame)
        if self._is_closed or len(self._lossy) >= LOSSY_KEYS:
            return
        self._lossy[key] = _Lossy(frame, now if old is None else old.since)
        self._lossy_bytes += len(frame)

    def resume(self) -> None:
        """Take live events again: everything up to `position` was queued."""
        self.is_behind = False

    def drop_events(self) -> None:
        """Keep only answers: the connection ends, and what others do is no more its concern."""
        self._drop_ordered()
        self._lossy.clear()
        self._lossy_bytes = 0
        self.is_behind = False
        self._is_closed = True

    def take(self, now: float) -> bytes | None:
        """Take one frame's worth off the lanes, joined; None when nothing waits."""
        frames: list[bytes] = []
        room = self._take_control(frames, FRAME_BYTES)
        if self._is_lossy_old(now):
            room = self._take_lossy(frames, room)
        room = self._take_ordered(frames, room)
        self._take_lossy(frames, room)
        self._is_sending = bool(frames)
        return join(frames) if frames else None

    def sent(self) -> None:
        """Say that the transport took the frame."""
        self._is_sending = False

    def _take_control(self, frames: list[bytes], room: int) -> int:
        while self._control and _has_room(frames, room, self._control[0]):
            frame = self._control.popleft()
            self._control_bytes -= len(frame)
            frames.append(frame)
            room -= len(frame)
        # What was asked for first is answered first: nothing passes an answer that still waits.
        return 0 if self._control else room

    def _take_ordered(self, frames: list[bytes], room: int) -> int:
        while self._ordered and _has_room(frames, room, self._ordered[0][1]):
            self.sent_seq, frame = self._ordered.popleft()
            self._ordered_bytes -= len(frame)
            frames.append(frame)
            room -= len(frame)
        return room

    def _take_lossy(self, frames: list[bytes], room: int) -> int:
        for key in list(self._lossy):
            frame = self._lossy[key].frame
            if not _has_room(frames, room, frame):
                break
            del self._lossy[key]
            self._lossy_bytes -= len(frame)
            frames.append(frame)
            room -= len(frame)
        return room

    def _is_lossy_old(self, now: float) -> bool:
        oldest = next(iter(self._lossy.values()), None)
        return oldest is not None and now - oldest.since > LOSSY_PATIENCE_S

    def _fits(self, size: int) -> bool:
        return self.size_bytes + self._transport_bytes + size <= self._budget_bytes

    def _push(self, seq: int, frame: bytes) -> None:
        self._ordered.append((seq, frame))
        self._ordered_bytes += len(frame)
        self._position = seq

    def _fall_behind(self) -> None:
        self._drop_ordered()
        self._position = self.sent_seq
        self.is_behind = True
        self.times_behind += 1

    def _drop_ordered(self) -> None:
        self._ordered.clear()
        self._ordered_bytes = 0


def _has_room(frames: list[bytes], room: int, frame: bytes) -> bool:
    # A frame larger than the limit goes alone.
    return (len(frame) <= room and len(frames) < MAX_JOINED) or not frames
