"""A process that decodes and reads media for `Perception` and may be killed at any time.

Started as `python -m engine.perception.worker`; requests come on stdin, answers leave on stdout
(see `wire`). One process serves one kind of request: weights are loaded on first use.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, assert_never

import msgspec

from engine.api import (
    Box,
    Detected,
    EngineCode,
    EngineError,
    Keyframe,
    LabRow,
    MediaFailed,
    Progress,
    TextRow,
)
from engine.perception.labparse import needs_second_look
from engine.perception.labsheet import LabSheetReader
from engine.perception.wire import (
    PIXELS_NAME,
    Accepted,
    Answer,
    Chunk,
    Decode,
    Film,
    Finished,
    Hear,
    Listen,
    Pixels,
    PixelsReady,
    Read,
    Request,
    Still,
    frame,
    next_request,
    next_sent,
)

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1

Row = TypeVar("Row", TextRow, LabRow)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.perception.ocr import TextReader
    from engine.perception.speech import Recogniser
    from engine.perception.straight import Tilt


class Worker:
    """Answers one request after the other until its input ends."""

    def __init__(
        self,
        *,
        ocr_threads: int,
        ocr_side_px: int,
        ocr_batch: int,
        ocr_min_score: float,
        speech_model: str,
        speech_threads: int,
    ) -> None:
        self._ocr_threads = ocr_threads
        self._ocr_side_px = ocr_side_px
        self._ocr_batch = ocr_batch
        self._ocr_min_score = ocr_min_score
        self._speech_model = speech_model
        self._speech_threads = speech_threads
        self._reader: TextReader | None = None
        self._recogniser: Recogniser | None = None

    def serve(self, requests: BinaryIO, answers: BinaryIO) -> None:
        """Return when the parent closes its end."""
        while (request := next_request(requests)) is not None:
            for answer in self.answers(request, requests):
                answers.write(frame(answer))
                answers.flush()

    def answers(self, request: Request, more: BinaryIO) -> Iterator[Answer]:
        """Yield the answers to one request; every fault becomes a `MediaFailed`.

        `more` is where the bytes of what is still being recorded come from.
        """
        limit_cpu(request.cpu_s)
        yield Accepted()
        try:
            match request:
                case Decode():
                    yield from look(request)
                case Read():
                    yield from self._read(request)
                case Film() | Still():
                    yield from moving(request)
                case Hear():
                    yield from hear(request, more)
                case Listen():
                    yield from self._listen(request)
                case _:
                    assert_never(request)
        except EngineError as error:
            yield MediaFailed(media=request.media, code=error.code, message=error.message)
        except MemoryError:
            yield MediaFailed(
                media=request.media,
                code=EngineCode.MEDIA_TOO_BIG,
                message="The file needs more memory than a decoder may use.",
            )
        except Exception as error:
            # The border of the process: the type goes to the operator, nothing to the sender.
            print(f"perception worker: {type(error).__name__}", file=sys.stderr, flush=True)
            yield MediaFailed(
                media=request.media,
                code=EngineCode.INTERNAL,
                message="The file could not be looked at.",
            )

    def _listen(self, request: Listen) -> Iterator[Answer]:
        from engine.perception.speech import Recogniser

        if self._recogniser is None:
            self._recogniser = Recogniser(self._speech_model, self._speech_threads)
        yield from self._recogniser.listen(request)

    def _read(self, request: Read) -> Iterator[Answer]:
        began = time.perf_counter()
        timings: dict[str, float] = {}
        # onnxruntime and OpenCV take half a second to load, which only reading needs.
        from engine.perception.ocr import TextReader

        if self._reader is None:
            self._reader = TextReader(
                threads=self._ocr_threads,
                side_px=self._ocr_side_px,
                batch=self._ocr_batch,
                min_score=self._ocr_min_score,
            )
            timings["ocr_load"] = time.perf_counter() - began
        pixels = _pixels(request.pixels)
        page = self._reader.page(pixels)
        pieces = page.pieces
        timings["text_found"] = time.perf_counter() - began
        media, count = request.media, 0
        texts: list[TextRow] = []
        yield Progress(media=media, stage="ocr", done=0, total=len(pieces))
        # Lines and columns are those of the page laid straight; boxes leave as in the picture.
        lies = partial(_lying, page.tilt, pixels.shape[1], pixels.shape[0])
        sheet = LabSheetReader(media)
        for done, read in self._reader.read(pieces):
            for piece in read:
                count += 1
                box = piece.box
                row = TextRow(
                    media=media,
                    id=f"{media}.text.{count}",
                    box=Box(box.x0, box.y0, box.width, box.height),
                    text=piece.text,
                    score=piece.score,
                )
                yield _placed(lies(row), request.pixels)
                texts.append(row)
                for lab in self._settled(sheet.feed(row), texts, page.pixels):
                    yield _placed(lies(lab), request.pixels)
            yield Progress(media=media, stage="ocr", done=done, total=len(pieces))
        for lab in self._settled(sheet.finish(), texts, page.pixels):
            yield _placed(lies(lab), request.pixels)
        timings["ocr"] = time.perf_counter() - began
        yield Finished(timings=timings)

    def _settled(
        self, rows: list[LabRow], texts: list[TextRow], pixels: NDArray[np.uint8]
    ) -> Iterator[LabRow]:
        """Read a value again that a lost decimal point could have made abnormal.

        Two readings that differ leave the flag unknown.
        """
        for row in rows:
            cell = row.cells.get("value")
            if cell is None or not needs_second_look(row.flag, row.number, row.low, row.high):
                yield row
                continue
            assert self._reader is not None, "rows come from a reader"
            first = [text for text in texts if _covers(text.box, cell)]
            is_sure = bool(first) and self._reader.reads_again(pixels, first[-1])
            yield row if is_sure else msgspec.structs.replace(row, flag="unknown", doubt="reading")


def _pixels(source: Pixels | Keyframe) -> NDArray[np.uint8]:
    import numpy as np

    if isinstance(source, Pixels):
        shape = (source.height, source.width, 3)
        return np.memmap(source.path, dtype=np.uint8, mode="r", shape=shape)
    from PIL import Image

    with Image.open(source.path) as picture:
        return np.asarray(picture.convert("RGB"))


def _placed(row: Row, source: Pixels | Keyframe) -> Row:
    """Tie a row that was read on a keyframe to it; its id is the same at every look."""
    if isinstance(source, Pixels):
        return row
    rest = row.id.removeprefix(source.media)
    row_id = f"{source.media}.{source.frame}{rest}"
    return msgspec.structs.replace(row, id=row_id, frame=source.frame, pts_us=source.pts_us)


def _lying(tilt: Tilt | None, width: int, height: int, row: Row) -> Row:
    """Put a row of the straight page where it lies in the picture."""
    if tilt is None:
        return row
    box = tilt.in_picture(row.box, width, height)
    if isinstance(row, TextRow):
        return msgspec.structs.replace(row, box=box)
    cells = {name: tilt.in_picture(cell, width, height) for name, cell in row.cells.items()}
    return msgspec.structs.replace(row, box=box, cells=cells)


def _covers(box: Box, cell: Box) -> bool:
    x, y = cell.x + cell.width / 2, cell.y + cell.height / 2
    return box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height


def look(request: Decode) -> Iterator[Answer]:
    """Decode by what the bytes are."""
    from engine.perception.detect import check_size, is_dicom

    check_size(request.path, request.max_bytes)
    if not is_dicom(request.path):
        yield from decode(request)
        return
    # pydicom and its decoders take a quarter of a second to load, which few files need.
    from engine.perception.dicomlook import decode_dicom

    yield from decode_dicom(request)


def decode(request: Decode) -> Iterator[Answer]:
    """Identify, announce, draft, decode; the pixels are handed on before the big levels."""
    began = time.perf_counter()
    timings: dict[str, float] = {}

    def passed(name: str) -> None:
        timings[name] = time.perf_counter() - began

    # Pillow, its plug-ins and magika stay out of the process that only reads text.
    from engine.perception.detect import identify, is_declared_wrongly
    from engine.perception.levels import Pyramid
    from engine.perception.picture import Source

    kind = identify(
        request.path,
        max_bytes=request.max_bytes,
        max_pixels=request.max_pixels,
        max_ratio=request.max_ratio,
    )
    passed("detected")
    yield Detected(
        media=request.media,
        media_type=kind.media_type,
        width=kind.width,
        height=kind.height,
        orientation=kind.orientation,
        mismatch=is_declared_wrongly(request.declared_type, kind.media_type),
    )
    source = Source(request.path, kind)
    pyramid = Pyramid(request.media, source, request.derived_dir)
    yield from pyramid.early()
    picture = source.pixels()
    passed("decoded")
    raw = Path(request.derived_dir) / PIXELS_NAME
    raw.write_bytes(picture.tobytes())
    yield PixelsReady(pixels=Pixels(path=str(raw), width=picture.width, height=picture.height))
    yield from pyramid.rest(picture)
    passed("levels")
    yield Finished(timings=timings)


def moving(request: Film | Still) -> Iterator[Answer]:
    """Decode a video, or one still of a camera."""
    # PyAV stays out of the process that only decodes pictures until a video comes.
    if isinstance(request, Film):
        from engine.perception.film import film

        yield from film(request)
    else:
        from engine.perception.stills import still

        yield from still(request)


def hear(request: Hear, more: BinaryIO) -> Iterator[Answer]:
    """Decode sound, whole or as its bytes come."""
    from engine.perception import sound
    from engine.perception.detect import check_size

    if request.path is not None:
        check_size(request.path, request.max_bytes)

    def next_chunk() -> bytes | None:
        sent = next_sent(more)
        # Each chunk has its own allowance: a microphone may be open for hours.
        limit_cpu(request.cpu_s)
        return sent.data if isinstance(sent, Chunk) else None

    yield from sound.hear(request, next_chunk)


def warm_up(role: str) -> None:
    """Load what the first request would wait for."""
    if role == "decode":
        from PIL import Image

        from engine.perception import detect, levels, picture

        Image.init()
        _ = (detect, levels, picture)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, even while it stands still."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def limit_memory(limit_bytes: int) -> None:
    """Let an allocation beyond the limit fail; macOS knows the limit but refuses to set it."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    except (OSError, ValueError):
        print("perception worker: no memory limit on this system", file=sys.stderr, flush=True)


def limit_cpu(more_s: int) -> None:
    """End the process by signal when it burns more than `more_s` of CPU time from now on.

    The parent's own clock is shorter; this one ends a worker whose parent was killed.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime) + more_s
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def main() -> None:
    """Serve stdin until it ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--role", choices=("decode", "read", "hear", "listen"), required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--ocr-threads", type=int, required=True)
    parser.add_argument("--ocr-side-px", type=int, required=True)
    parser.add_argument("--ocr-batch", type=int, required=True)
    parser.add_argument("--ocr-min-score", type=float, required=True)
    parser.add_argument("--speech-model", required=True)
    parser.add_argument("--speech-threads", type=int, required=True)
    options = parser.parse_args()
    end_with_parent()
    limit_memory(options.memory_bytes)
    # Libraries that print must not break the frames: their stdout becomes stderr.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    warm_up(options.role)
    worker = Worker(
        ocr_threads=options.ocr_threads,
        ocr_side_px=options.ocr_side_px,
        ocr_batch=options.ocr_batch,
        ocr_min_score=options.ocr_min_score,
        speech_model=options.speech_model,
        speech_threads=options.speech_threads,
    )
    worker.serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
