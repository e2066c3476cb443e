"""A video as keyframes: one a second of presentation time, each an upright JPEG."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from engine.api import Detected, EngineCode, EngineError, Keyframe, Progress
from engine.perception.detect import Kind, check_size, is_declared_wrongly
from engine.perception.levels import Pyramid
from engine.perception.likeness import Glance
from engine.perception.wire import UNFINISHED_SUFFIX, Answer, Film, Finished, Tracks

if TYPE_CHECKING:
    import av
    from PIL import Image

MAX_KEYFRAMES = 600
# Where no length is told, keyframes get rarer from here on: an hour has some 630.
_THIN_FROM_S = 150.0
# A file that ends so much before its own length was cut.
_CUT_SHORT_S = 1.5
_JPEG_QUALITY = 90


def film(request: Film) -> Iterator[Answer]:
    """Announce, then decode to the end; a container without moving pictures only says so."""
    import av

    began = time.perf_counter()
    check_size(request.path, request.max_bytes)
    try:
        # Titles in letters of another character set are none of our business.
        with av.open(request.path, "r", metadata_errors="replace") as container:
            stream = _moving(container)
            has_sound = bool(container.streams.audio)
            yield Tracks(has_pictures=stream is not None, has_sound=has_sound)
            if stream is not None:
                yield from _Film(request, container, stream).answers()
    except av.FFmpegError as damage:
        raise _damaged(request.path) from damage
    yield Finished(timings={"decoded": time.perf_counter() - began})


def write_keyframe(picture: Image.Image, derived_dir: str, frame: int) -> str:
    """Write a keyframe where the server finds it, whole or not at all; returns the path."""
    folder = Path(derived_dir) / "frames"
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{frame}{UNFINISHED_SUFFIX}"
    picture.save(unfinished, "JPEG", quality=_JPEG_QUALITY)
    os.replace(unfinished, folder / str(frame))
    return str(folder / str(frame))


class _Film:
    """One video on its way through the decoder."""

    def __init__(
        self,
        request: Film,
        container: av.container.InputContainer,
        stream: av.video.stream.VideoStream,
    ) -> None:
        self._request = request
        self._container = container
        self._stream = stream
        self._length_s = self._told_length()
        self._count = 0
        self._read: tuple[int, Glance] | None = None
        self._check_limits()

    def answers(self) -> Iterator[Answer]:
        """Yield the video's kind, its poster and its keyframes."""
        first, last_s, next_s = None, 0.0, 0.0
        for frame, at_s in self._frames():
            if first is None:
                first = frame
                yield from self._announce(frame)
            last_s = at_s
            if at_s + 1e-4 < next_s or self._count >= MAX_KEYFRAMES:
                continue
            yield self._keyframe(frame, at_s)
            yield Progress(
                media=self._request.media,
                stage="keyframes",
                done=self._count,
                total=int((self._length_s or 0) / self._every(0.0)),
            )
            # On a grid of whole steps: one late frame does not shift all that follow.
            every = self._every(at_s)
            next_s = (at_s // every + 1) * every
        if first is None:
            raise EngineError(EngineCode.MEDIA_EMPTY, "There is no picture in this video.")
        if self._length_s is not None and last_s < self._length_s - _CUT_SHORT_S:
            raise EngineError(
                EngineCode.MEDIA_TRUNCATED,
                f"The video ends at {last_s:.1f} s of {self._length_s:.1f} s.",
            )
        if self._length_s is None:
            yield self._detected(first, last_s)

    def _told_length(self) -> float | None:
        stream = self._stream
        if stream.duration is not None and stream.time_base is not None:
            return float(stream.duration * stream.time_base)
        # Matroska tells one length for all tracks, of which sound may be the longest.
        if self._container.duration is not None and not self._container.streams.audio:
            return float(self._container.duration / 1_000_000)
        return None

    def _check_limits(self) -> None:
        request, stream = self._request, self._stream
        if stream.width * stream.height > request.max_pixels:
            raise EngineError(
                EngineCode.MEDIA_TOO_MANY_PIXELS,
                f"The video has {stream.width} x {stream.height} pixels.",
            )
        if (self._length_s or 0) > request.max_film_s:
            raise _too_long(request)

    def _every(self, at_s: float) -> float:
        """Seconds from one keyframe to the next."""
        if self._length_s is not None:
            return max(1.0, self._length_s / MAX_KEYFRAMES)
        return max(1.0, at_s / _THIN_FROM_S)

    def _frames(self) -> Iterator[tuple[av.VideoFrame, float]]:
        """Yield frames with their time since the beginning, which always rises."""
        import av

        stream = self._stream
        stream.thread_type = "AUTO"
        rate = stream.average_rate or stream.guessed_rate or Fraction(25)
        start_s: float | None = None
        before_s, damaged = -1.0, None
        for packet in self._container.demux(stream):
            try:
                frames = packet.decode()
            except av.FFmpegError as error:
                # One broken packet must not hide the rest; a file of nothing else is damaged.
                damaged = error
                continue
            for frame in frames:
                assert isinstance(frame, av.VideoFrame)
                told = frame.time
                if told is None:
                    told = before_s + float(1 / rate)
                    start_s = 0.0 if start_s is None else start_s
                start_s = told if start_s is None else start_s
                at_s = told - start_s
                if at_s <= before_s:
                    continue
                if at_s > self._request.max_film_s:
                    raise _too_long(self._request)
                before_s = at_s
                yield frame, at_s
        if before_s < 0 and damaged is not None:
            raise damaged

    def _announce(self, frame: av.VideoFrame) -> Iterator[Answer]:
        yield self._detected(frame, self._length_s or 0.0)
        picture = self._upright(frame)
        kind = Kind("image/jpeg", picture.width, picture.height, 1)
        poster = Pyramid(self._request.media, _Poster(self._request.path, kind), self._derived)
        yield from poster.rest(picture)

    def _detected(self, frame: av.VideoFrame, length_s: float) -> Detected:
        picture = self._upright(frame)
        media_type = media_type_of(self._container.format.name, self._request.path)
        return Detected(
            media=self._request.media,
            media_type=media_type,
            width=picture.width,
            height=picture.height,
            mismatch=is_declared_wrongly(self._request.declared_type, media_type),
            duration_s=length_s,
        )

    def _upright(self, frame: av.VideoFrame) -> Image.Image:
        return upright(frame, self._stream.sample_aspect_ratio)

    @property
    def _derived(self) -> str:
        return self._request.derived_dir

    def _keyframe(self, frame: av.VideoFrame, at_s: float) -> Keyframe:
        picture, number = self._upright(frame), self._count
        glance = Glance.of(picture)
        like = self._read[0] if self._read is not None and glance.is_like(self._read[1]) else None
        if like is None:
            self._read = (number, glance)
        self._count += 1
        return Keyframe(
            media=self._request.media,
            frame=number,
            pts_us=round(at_s * 1_000_000),
            path=write_keyframe(picture, self._derived, number),
            width=picture.width,
            height=picture.height,
            like=like,
        )


class _Poster:
    """The first keyframe as a source of levels: there is no quicker way to it."""

    def __init__(self, path: str, kind: Kind) -> None:
        self.path = path
        self.kind = kind

    def draft(self, side_px: int) -> None:
        return None


def upright(frame: av.VideoFrame, shape: Fraction | None) -> Image.Image:
    """Return a decoded frame as it is to be shown: with square pixels, and turned.

    `shape` is the width of its pixels by their height.
    """
    picture: Image.Image = frame.to_image()  # type: ignore[no-untyped-call]
    if shape is not None and shape > 0 and shape != 1:
        picture = picture.resize((max(1, round(picture.width * shape)), picture.height))
    if turned := frame.rotation % 360:
        # A whole number of quarter turns, counter-clockwise as both libraries count.
        picture = picture.rotate(turned, expand=True)
    return picture


def media_type_of(container: str, path: str) -> str:
    """Name a container as browsers do; `container` is what the demultiplexer calls it."""
    if "mp4" in container:
        with open(path, "rb") as file:
            is_quicktime = file.read(12)[8:12] == b"qt  "
        return "video/quicktime" if is_quicktime else "video/mp4"
    if "matroska" in container:
        with open(path, "rb") as file:
            return "video/webm" if b"webm" in file.read(64) else "video/x-matroska"
    return "video/x-msvideo"


def _moving(container: av.container.InputContainer) -> av.video.stream.VideoStream | None:
    """Return the first video track that is not the cover of an album."""
    from av.stream import Disposition

    moving = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not moving:
        return None
    # PyAV makes a track without a decoder, and without a size, of a codec that it does not know.
    if getattr(moving[0], "codec_context", None) is None:
        raise EngineError(
            EngineCode.MEDIA_UNSUPPORTED, "The pictures of this video are in a form not known here."
        )
    return moving[0]


def _too_long(request: Film) -> EngineError:
    return EngineError(
        EngineCode.MEDIA_TOO_BIG, f"The video is longer than {request.max_film_s:,.0f} s."
    )


def _damaged(path: str) -> EngineError:
    with open(path, "rb") as file:
        is_mp4 = file.read(8)[4:] == b"ftyp"
    if is_mp4 and _is_cut(path):
        return EngineError(EngineCode.MEDIA_TRUNCATED, "The end of this video is missing.")
    return EngineError(EngineCode.MEDIA_CORRUPT, "This video is damaged.")


def _is_cut(path: str) -> bool:
    """Whether the last box of an MP4 ends behind the file, or its table of contents is missing."""
    size, at, names = os.path.getsize(path), 0, set()
    with open(path, "rb") as file:
        while at + 8 <= size:
            file.seek(at)
            length, name = struct.unpack(">I4s", file.read(8))
            if length == 1:
                length = int.from_bytes(file.read(8), "big")
            names.add(name)
            # 0 means "to the end of the file"; anything below a header's size is damage.
            at = size if length == 0 else at + max(length, 8)
    return at > size or b"moov" not in names
