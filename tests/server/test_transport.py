"""The deadline's arithmetic, without a socket."""

from __future__ import annotations

from server.transport import Progress


class Transport:
    """What `Progress` asks of a transport."""

    def __init__(self) -> None:
        self.size = 0
        self.is_aborted = False

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.is_aborted = True


def test_who_takes_nothing_is_stuck_and_who_takes_a_little_is_not():
    transport = Transport()
    progress = Progress(transport)
    assert progress.stuck_s(100) == 0
    transport.size = 1_000
    progress.sending(now=0)
    assert progress.stuck_s(9) == 9
    transport.size = 999
    assert progress.stuck_s(10) == 0
    assert progress.stuck_s(15) == 5
    progress.sent()
    assert progress.stuck_s(100) == 0


def test_without_a_transport_nothing_is_buffered_and_nothing_aborted():
    progress = Progress(None)
    assert progress.buffered_bytes == 0
    progress.abort()
