"""Recordings and microphones through a whole `Perception`, its workers and their losses."""

import asyncio
import os
import signal
import uuid

import numpy as np
import pytest
import pytest_asyncio

from engine.api import Completed, Detected, EngineCode, Media, MediaFailed, Speech
from engine.perception.config import PerceptionConfig
from engine.perception.service import Perception
from tests.support.looking import look, media, of
from tests.support.spoken import (
    TEXTS,
    encoded,
    recording,
    samples,
    speech_model,
    word_error_rate,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.model]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def perception():
    running = Perception(PerceptionConfig(speech_model=str(speech_model())))
    await running.start()
    yield running
    await running.stop()


def microphone(folder, declared_type):
    name = uuid.uuid4().hex
    derived = str(folder / name)
    return Media(
        id=name, tenant="t", path=None, name=name, derived_dir=derived, declared_type=declared_type
    )


async def speak(perception, item, chunks):
    for chunk in chunks:
        await perception.feed(item.id, chunk, 0)
    await perception.close(item.id)


async def live(perception, item, chunks):
    observations = perception.open(item)
    speaking = asyncio.create_task(speak(perception, item, chunks))
    seen = [observation async for observation in observations]
    await speaking
    return seen


def slices(content, size):
    return [content[start : start + size] for start in range(0, len(content), size)]


def text(seen):
    return " ".join(one.text for one in of(Speech, seen))


@pytest.mark.parametrize("name", TEXTS)
async def test_a_recording_is_written_down_with_few_errors(perception, tmp_path, name):
    seen = await look(perception, media(tmp_path, recording(name).read_bytes()))
    assert isinstance(seen[-1], Completed)
    assert word_error_rate(TEXTS[name], text(seen)) <= 0.15
    (detected,) = of(Detected, seen)
    pcm, rate = samples(name)
    assert (detected.media_type, detected.duration_s) == ("audio/wav", len(pcm) / rate)
    times = [t for one in of(Speech, seen) for t in (one.start_s, one.end_s)]
    assert times == sorted(times) and times[-1] <= detected.duration_s


async def test_the_same_in_20_ms_chunks_of_a_microphone(perception, tmp_path):
    pcm, rate = samples("two_cities")
    item = microphone(tmp_path, f"audio/pcm;rate={rate};channels=1")
    seen = await live(perception, item, slices(pcm.tobytes(), rate // 50 * 2))
    assert word_error_rate(TEXTS["two_cities"], text(seen)) <= 0.15
    assert of(Detected, seen)[0].duration_s == len(pcm) / rate


async def test_M1_the_same_in_slices_of_a_browsers_recorder(perception, tmp_path):
    pcm, rate = samples("two_cities")
    content = encoded(pcm, rate, tmp_path / "made", "webm", "libopus")
    item = microphone(tmp_path, "audio/webm;codecs=opus")
    seen = await live(perception, item, slices(content, 4_000))
    assert word_error_rate(TEXTS["two_cities"], text(seen)) <= 0.15


async def test_words_come_while_the_microphone_is_open_and_the_last_at_its_end(
    perception, tmp_path
):
    """M2: the last utterance is cut in the middle of its last word."""
    pcm, rate = samples("beckett")
    item = microphone(tmp_path, f"audio/pcm;rate={rate}")
    observations = perception.open(item)
    await perception.feed(item.id, pcm[: 5 * rate].tobytes(), 0)
    first = await anext(observations)
    assert isinstance(first, Speech) and "tried" in first.text
    await perception.feed(item.id, pcm[5 * rate : 9 * rate].tobytes(), 0)
    await perception.close(item.id)
    rest = [observation async for observation in observations]
    assert "better" in of(Speech, rest)[-1].text.lower()


async def test_a_lost_recogniser_costs_no_word(perception, tmp_path):
    pcm, rate = samples("beckett")
    item = microphone(tmp_path, f"audio/pcm;rate={rate}")
    observations = perception.open(item)
    await perception.feed(item.id, pcm[: 4 * rate].tobytes(), 0)
    seen = [await anext(observations)]
    os.kill(int(perception.stats().gauges["speech_worker_pid_0"]), signal.SIGKILL)
    await speak(perception, item, [pcm[4 * rate :].tobytes()])
    seen += [observation async for observation in observations]
    assert isinstance(seen[-1], Completed)
    assert word_error_rate(TEXTS["beckett"], text(seen)) <= 0.15


async def test_a_recording_that_is_given_up_leaves_the_recogniser_to_the_others(
    perception, tmp_path
):
    pcm, rate = samples("beckett")
    item = microphone(tmp_path, f"audio/pcm;rate={rate}")
    observations = perception.open(item)
    await perception.feed(item.id, pcm.tobytes(), 0)
    assert isinstance(await anext(observations), Speech)
    worker = perception.stats().gauges["speech_worker_pid_0"]
    await observations.aclose()
    seen = await look(perception, media(tmp_path, recording("beckett").read_bytes()))
    assert word_error_rate(TEXTS["beckett"], text(seen)) <= 0.15
    assert perception.stats().gauges["speech_worker_pid_0"] == worker
    assert perception.stats().gauges["media_heard"] == 0


async def test_M5_a_quiet_microphone_has_a_length_and_no_words(perception, tmp_path):
    item = microphone(tmp_path, "audio/pcm;rate=16000")
    seen = await live(perception, item, [np.zeros(16_000, "<i2").tobytes()] * 5)
    assert [type(one) for one in seen] == [Detected, Completed]
    assert seen[0].duration_s == 5.0


async def test_damaged_and_unknown_sound_fails_alone(perception, tmp_path):
    noise = b"\x1a\x45\xdf\xa3" + bytes(range(256)) * 20
    failed = (await look(perception, media(tmp_path, noise)))[-1]
    assert isinstance(failed, MediaFailed) and failed.code is EngineCode.MEDIA_CORRUPT
    item = microphone(tmp_path, "audio/webm")
    failed = (await live(perception, item, [b"no webm at all, " * 9]))[-1]
    assert isinstance(failed, MediaFailed) and failed.code is EngineCode.MEDIA_UNSUPPORTED


async def test_without_a_model_a_recording_says_what_to_do(tmp_path):
    blind = Perception(PerceptionConfig())
    await blind.start()
    try:
        failed = (await look(blind, media(tmp_path, recording("beckett").read_bytes())))[-1]
        assert isinstance(failed, MediaFailed) and failed.code is EngineCode.MEDIA_UNSUPPORTED
        assert "models pull" in failed.message
    finally:
        await blind.stop()
