"""The process that writes one export: `python -m server.export.worker`.

A request comes on standard input; the file goes to standard output and an `Outcome` to the last
line of standard error. It has limits of its own, because a picture or DICOM file may be anything.
"""

from __future__ import annotations

import contextlib
import resource
import sys

import msgspec

from server.export.case import Case, NotExportable
from server.export.formats import write

CPU_S = 120
MEMORY_BYTES = 4 * 1024 * 1024 * 1024


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be written."""

    format: str
    case: Case


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; `refused` is "" when the file is whole."""

    refused: str = ""
    media_type: str = ""
    suffix: str = ""


def main() -> None:
    """Do what is asked for on standard input."""
    # What a platform does not limit is limited by whoever waits for this process.
    for what, most in ((resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_AS, MEMORY_BYTES)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Request)
    try:
        written = write(request.format, request.case)
    except NotExportable as refusal:
        outcome = Outcome(refused=str(refusal))
    else:
        sys.stdout.buffer.write(written.content)
        sys.stdout.buffer.flush()
        outcome = Outcome(media_type=written.media_type, suffix=written.suffix)
    sys.stderr.buffer.write(b"\n" + msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
