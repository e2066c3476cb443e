"""Videos through a whole `Perception`: keyframes by presentation time, read like pictures."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import struct

import numpy as np
import pytest
import pytest_asyncio
from PIL import Image

from engine.api import (
    Completed,
    Detected,
    EngineCode,
    EngineError,
    Keyframe,
    LabRow,
    LevelReady,
    Media,
    MediaFailed,
    Progress,
    Speech,
)
from engine.perception.config import PerceptionConfig
from engine.perception.film import film
from engine.perception.service import Perception
from engine.perception.wire import Film, Finished
from tests.support.filming import encoded, frames_of, video
from tests.support.labsheet_render import render_sheet
from tests.support.looking import look, media, of
from tests.support.spoken import TEXTS, samples, speech_model, word_error_rate

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORMS = [
    (".mp4", "libx264", "yuv420p"),
    (".mp4", "libx265", "yuv420p10le"),
    (".mp4", "mpeg4", "yuv420p"),
    (".mov", "libx264", "yuv444p"),
    (".webm", "libvpx", "yuv420p"),
    (".webm", "libvpx-vp9", "yuv420p"),
    (".webm", "libsvtav1", "yuv420p"),
    (".mkv", "libx264", "yuv420p"),
    (".avi", "mpeg4", "yuv420p"),
]
TYPES = {
    ".mp4": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
    ".avi": "video/x-msvideo",
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def perception():
    running = Perception(PerceptionConfig(speech_model=str(speech_model())))
    await running.start()
    yield running
    await running.stop()


def gray(value: int, size: tuple[int, int] = (320, 240)) -> Image.Image:
    """A picture that is told by its brightness alone."""
    return Image.new("RGB", size, (value, value, value))


def brightness(path: str) -> float:
    with Image.open(path) as picture:
        return float(np.asarray(picture.convert("L"), np.float32).mean())


@pytest.mark.parametrize(("suffix", "codec", "pixels"), FORMS)
async def test_a_keyframe_a_second_from_every_container_and_codec(
    perception, tmp_path, suffix, codec, pixels
):
    shots = [(gray(40), 2.0), (gray(200), 1.5)]
    content = encoded(shots, suffix, tmp_path, codec=codec, pixels=pixels)
    seen = await look(perception, media(tmp_path, content))
    keyframes = of(Keyframe, seen)
    assert [k.pts_us for k in keyframes] == [0, 1_000_000, 2_000_000, 3_000_000]
    assert [k.frame for k in keyframes] == [0, 1, 2, 3]
    values = [brightness(k.path) for k in keyframes]
    assert np.allclose(values, [40, 40, 200, 200], atol=12)
    detected = of(Detected, seen)[-1]
    assert detected.media_type == TYPES[suffix]
    assert (detected.width, detected.height) == (320, 240)
    assert detected.duration_s == pytest.approx(3.5, abs=0.2)
    # The first keyframe is also the poster that every viewer of pictures can show.
    assert [level.level for level in of(LevelReady, seen)] == [16, 64, 256, 0]
    assert of(Progress, seen) and isinstance(seen[-1], Completed)


async def test_W89_keyframes_of_a_variable_rate_carry_the_time_of_the_very_frame(
    perception, tmp_path
):
    times = [0.0, 0.04, 0.9, 1.3, 1.32, 3.7, 3.71, 4.02, 6.0]
    frames = [(at, gray(20 + 25 * index)) for index, at in enumerate(times)]
    path = video(tmp_path / "vfr.mp4", frames, rate=1000, options={"crf": "5", "bf": "0"})
    keyframes = of(Keyframe, await look(perception, media(tmp_path, path.read_bytes())))
    # The first frame at or behind each second; a second without a frame has no keyframe.
    assert [round(k.pts_us / 1e6, 2) for k in keyframes] == [0.0, 1.3, 3.7, 4.02, 6.0]
    for keyframe in keyframes:
        index = times.index(round(keyframe.pts_us / 1e6, 2))
        assert brightness(keyframe.path) == pytest.approx(20 + 25 * index, abs=6)


async def test_two_sheets_in_one_video_are_read_each_at_its_time_and_once(perception, tmp_path):
    sheets = [render_sheet(3, "en"), render_sheet(4, "en")]
    pages = [Image.open(__import__("io").BytesIO(sheet.png)) for sheet in sheets]
    side = (max(p.width for p in pages) // 2 * 2, max(p.height for p in pages) // 2 * 2)
    shots = []
    for page in pages:
        whole = Image.new("RGB", side, "white")
        whole.paste(page)
        shots.append((whole, 3.0))
    content = encoded(shots, ".mp4", tmp_path, rate=4, options={"crf": "12"})
    seen = await look(perception, media(tmp_path, content))
    keyframes, rows = of(Keyframe, seen), of(LabRow, seen)
    assert [k.like for k in keyframes] == [None, 0, 0, None, 3, 3]
    assert {(row.frame, row.pts_us) for row in rows} == {(0, 0), (3, 3_000_000)}
    for frame, sheet in ((0, sheets[0]), (3, sheets[1])):
        out = {row.analyte for row in rows if row.frame == frame and row.flag in ("low", "high")}
        assert len(out) == sum(true.flag != "normal" for true in sheet.rows)
    assert len({row.id for row in rows}) == len(rows)


async def test_the_sound_of_a_video_is_written_down_beside_its_pictures(perception, tmp_path):
    pcm, rate = samples("beckett")
    sound = pcm[:: rate // 16_000] if rate % 16_000 == 0 else _resampled(pcm, rate)
    seconds = len(sound) / 16_000
    content = encoded([(gray(90), seconds)], ".mp4", tmp_path, sound=sound)
    seen = await look(perception, media(tmp_path, content))
    written = " ".join(row.text for row in of(Speech, seen))
    assert word_error_rate(TEXTS["beckett"], written) <= 0.15
    assert len(of(Keyframe, seen)) >= int(seconds)
    assert {d.media_type for d in of(Detected, seen)} == {"video/mp4"}


def _resampled(pcm: np.ndarray, rate: int) -> np.ndarray:
    at = np.arange(0, len(pcm) - 1, rate / 16_000)
    return np.interp(at, np.arange(len(pcm)), pcm).astype("<i2")


@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
async def test_a_container_with_sound_alone_is_a_recording(perception, tmp_path, suffix):
    pcm, rate = samples("beckett")
    from tests.support.spoken import encoded as recorded

    form, codec = ("mp4", "aac") if suffix == ".mp4" else ("webm", "libopus")
    content = recorded(
        _resampled(pcm, rate * 16_000 // 48_000), 48_000, tmp_path / "x", form, codec
    )
    seen = await look(perception, media(tmp_path, content))
    assert of(Detected, seen)[0].media_type.startswith("audio/")
    assert of(Speech, seen) and not of(Keyframe, seen)


async def test_a_turned_phone_video_is_shown_upright(perception, tmp_path):
    """The matrix of the track's header says a quarter turn; the pixels are stored lying."""
    lying = Image.new("RGB", (320, 240), "black")
    lying.paste(Image.new("RGB", (320, 60), "white"), (0, 0))
    content = bytearray(encoded([(lying, 1.0)], ".mp4", tmp_path))
    at = content.index(b"tkhd") + 4 + 4 + 36
    # Clockwise by 90 degrees: x' = -y, y' = x (ISO/IEC 14496-12, 8.3.2), in 16.16 and 2.30.
    one = 1 << 16
    content[at : at + 36] = struct.pack(">9i", 0, one, 0, -one, 0, 0, 240 * one, 0, 1 << 30)
    seen = await look(perception, media(tmp_path, bytes(content)))
    keyframe = of(Keyframe, seen)[0]
    assert (keyframe.width, keyframe.height) == (240, 320)
    with Image.open(keyframe.path) as picture:
        pixels = np.asarray(picture.convert("L"), np.float32)
    # What was at the top lies at the right now.
    assert pixels[:, 200:].mean() > 220 and pixels[:, :160].mean() < 30


async def test_odd_sides_are_kept(perception, tmp_path):
    content = encoded([(gray(80, (321, 243)), 1.0)], ".mkv", tmp_path, pixels="yuv444p")
    keyframe = of(Keyframe, await look(perception, media(tmp_path, content)))[0]
    assert (keyframe.width, keyframe.height) == (321, 243)


@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
async def test_a_cut_video_is_told_or_read_and_never_hangs(perception, tmp_path, suffix):
    codec = "libx264" if suffix == ".mp4" else "libvpx"
    noise = np.random.default_rng(5)
    frames = [
        (at, Image.fromarray(noise.integers(0, 255, (120, 160, 3), np.uint8)))
        for at, _ in frames_of([(gray(0), 6.0)], 5)
    ]
    path = video(tmp_path / f"film{suffix}", frames, codec=codec, rate=5)
    content = path.read_bytes()
    codes = set()
    for part in range(1, 16):
        cut = content[: len(content) * part // 16]
        seen = await look(perception, media(tmp_path, cut))
        codes |= {failed.code for failed in of(MediaFailed, seen)}
    allowed = {
        EngineCode.MEDIA_TRUNCATED,
        EngineCode.MEDIA_CORRUPT,
        EngineCode.MEDIA_EMPTY,
    }
    assert EngineCode.MEDIA_TRUNCATED in codes and codes <= allowed


async def test_a_video_with_its_table_in_front_that_was_cut_is_truncated(perception, tmp_path):
    """Every frame that came is fine; only its own length tells that there should be more."""
    content = encoded(
        [(gray(10 * n), 1.0) for n in range(8)],
        ".mp4",
        tmp_path,
        container_options={"movflags": "faststart"},
        options={"crf": "1"},
    )
    seen = await look(perception, media(tmp_path, content[: len(content) // 2]))
    assert of(Keyframe, seen)
    assert of(MediaFailed, seen)[0].code is EngineCode.MEDIA_TRUNCATED


async def test_noise_in_a_containers_clothes_is_refused(perception, tmp_path):
    for content in (
        b"\0\0\0\x18ftypisom\0\0\2\0isomiso2" + bytes(range(256)) * 40,
        b"\x1a\x45\xdf\xa3" + bytes(range(256)) * 40,
        b"RIFF\0\1\0\0AVI LIST" + bytes(range(256)) * 40,
    ):
        failed = of(MediaFailed, await look(perception, media(tmp_path, content)))
        assert failed and failed[0].code in (
            EngineCode.MEDIA_TRUNCATED,
            EngineCode.MEDIA_CORRUPT,
            EngineCode.MEDIA_UNSUPPORTED,
        )


async def test_limits_hold_before_anything_is_decoded(tmp_path):
    content = encoded([(gray(9), 3.0)], ".mp4", tmp_path)
    for limits, code in (
        ({"max_pixels": 1_000}, EngineCode.MEDIA_TOO_MANY_PIXELS),
        ({"max_film_s": 2.0}, EngineCode.MEDIA_TOO_BIG),
        ({"max_bytes": 100}, EngineCode.MEDIA_TOO_BIG),
    ):
        perception = Perception(PerceptionConfig(**limits))
        await perception.start()
        seen = await look(perception, media(tmp_path, content))
        await perception.stop()
        assert of(MediaFailed, seen)[0].code is code and not of(Keyframe, seen)


async def test_a_decoder_killed_in_the_middle_of_a_video_costs_that_video(perception, tmp_path):
    noise = np.random.default_rng(1)
    big = [Image.fromarray(noise.integers(0, 255, (480, 640, 3), np.uint8)) for _ in range(5)]
    content = encoded([(page, 2.0) for page in big], ".mp4", tmp_path, rate=25)
    item = media(tmp_path, content)
    before = _children()
    seen = []
    async for observation in perception.open(item):
        seen.append(observation)
        if isinstance(observation, Keyframe) and observation.frame == 0:
            for pid in _children() - before:
                os.kill(pid, signal.SIGKILL)
    assert of(MediaFailed, seen)[0].code is EngineCode.DECODER_LOST
    after = await look(perception, media(tmp_path, encoded([(gray(9), 1.0)], ".mp4", tmp_path)))
    assert isinstance(after[-1], Completed)


def _children() -> set[int]:
    import psutil

    return {child.pid for child in psutil.Process().children(recursive=True)}


async def test_a_look_that_nobody_reads_holds_a_whole_video(perception, tmp_path):
    content = encoded([(gray(n % 250), 1.0) for n in range(40)], ".mp4", tmp_path, rate=2)
    stream = perception.open(media(tmp_path, content))
    await asyncio.sleep(0)
    seen = [observation async for observation in stream]
    assert len(of(Keyframe, seen)) == 40 and isinstance(seen[-1], Completed)


def declared(folder, content: bytes, kind: str) -> Media:
    return media(folder, content, declared_type=kind)


async def test_a_type_that_lies_is_reported(perception, tmp_path):
    content = encoded([(gray(9), 1.0)], ".mp4", tmp_path)
    told = await look(perception, declared(tmp_path, content, "image/png"))
    true = await look(perception, declared(tmp_path, content, "video/mp4"))
    assert of(Detected, told)[0].mismatch and not of(Detected, true)[0].mismatch


def flipped(content: bytes, draw: random.Random) -> bytes:
    """The file with some of its bytes overwritten."""
    damaged = bytearray(content)
    for _ in range(draw.choice((1, 3, 20, 200))):
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
    return bytes(damaged)


@pytest.mark.parametrize(
    ("suffix", "codec"), [(".mp4", "libx264"), (".webm", "libvpx"), (".avi", "mpeg4")]
)
async def test_whatever_bytes_are_wrong_the_answer_is_frames_or_a_code(tmp_path, suffix, codec):
    """Titles that are no UTF-8 and codecs of no known name once were faults without a code."""
    content = encoded([(gray(70, (160, 120)), 1.0)], suffix, tmp_path, codec=codec)
    draw, codes = random.Random(suffix), set()
    for _ in range(150):
        (tmp_path / "damaged").write_bytes(flipped(content, draw))
        request = Film(
            media="m",
            path=str(tmp_path / "damaged"),
            derived_dir=str(tmp_path / "derived"),
            declared_type=None,
            max_bytes=1_000_000,
            max_pixels=10_000_000,
            max_film_s=3600,
            cpu_s=60,
        )
        try:
            assert isinstance(list(film(request))[-1], Finished)
        except EngineError as error:
            codes.add(error.code)
    assert codes and EngineCode.INTERNAL not in codes
