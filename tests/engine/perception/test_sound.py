import subprocess
import sys
import wave

import numpy as np
import pytest

from engine.api import Detected, EngineCode, EngineError
from engine.perception.sound import RATE, Raw, hear, is_live, raw_format, sound_type
from engine.perception.wire import SOUND_NAME, Hear, Heard
from tests.support.spoken import encoded


def tone(rate, seconds, hertz=440.0):
    time = np.arange(round(rate * seconds)) / rate
    return (12_000 * np.sin(2 * np.pi * hertz * time)).astype("<i2")


def heard(folder, chunks=None, *, content=None, declared=None, max_sound_s=60.0):
    """Hear the chunks as they come, or the content as a file: samples, and what was detected."""
    path = None
    if content is not None:
        path = str(folder / "recording")
        (folder / "recording").write_bytes(content)
    request = Hear(
        media="m",
        path=path,
        derived_dir=str(folder / "derived"),
        declared_type=declared,
        max_bytes=1 << 30,
        max_sound_s=max_sound_s,
        cpu_s=60,
    )
    coming = iter(chunks or ())
    answers = list(hear(request, lambda: next(coming, None)))
    last = [answer for answer in answers if isinstance(answer, Heard)][-1]
    samples = np.fromfile(last.samples, "<i2")
    assert len(samples) == last.count
    return samples, next(answer for answer in answers if isinstance(answer, Detected))


def loudest_hertz(samples):
    return np.argmax(np.abs(np.fft.rfft(samples))) * RATE / len(samples)


def slices(content, size):
    return [content[start : start + size] for start in range(0, len(content), size)]


def test_raw_sound_is_declared_with_its_rate_or_refused():
    assert raw_format("audio/pcm;rate=48000;channels=2") == Raw(48_000, 2)
    assert raw_format("Audio/PCM; rate=8000") == Raw(8_000, 1)
    assert raw_format("audio/webm;codecs=opus") is None and raw_format(None) is None
    for wrong in ("audio/pcm", "audio/pcm;rate=ten", "audio/pcm;rate=0", "audio/pcm;rate=1e9"):
        with pytest.raises(EngineError) as refusal:
            raw_format(wrong)
        assert refusal.value.code is EngineCode.MEDIA_UNSUPPORTED
    assert is_live("audio/webm") and not is_live("image/png") and not is_live(None)


def test_pictures_and_texts_are_not_taken_for_sound():
    for head in (b"\xff\xd8\xff\xe0" + b"0" * 12, b"\xff\xfea\0b\0c\0d\0e\0f\0g\0", b"text " * 4):
        assert sound_type(head) is None
    assert sound_type(b"\0\0\0\x18ftypheic" + b"\0" * 8) is None
    assert sound_type(b"") is None


@pytest.mark.parametrize(("seconds", "is_kept"), [(2.0, True), (30.0, True), (30.1, False)])
def test_a_short_recording_stays_for_a_model_that_hears(tmp_path, seconds, is_kept):
    chunks = slices(tone(48_000, seconds).tobytes(), 1 << 20)
    samples, _ = heard(tmp_path, chunks, declared="audio/pcm;rate=48000")
    kept = tmp_path / "derived" / SOUND_NAME
    assert kept.exists() is is_kept
    if is_kept:
        with wave.open(str(kept), "rb") as sound:
            assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (
                RATE,
                1,
                2,
            )
            assert sound.readframes(sound.getnframes()) == samples.tobytes()
    assert not list(kept.parent.glob(".*.part"))


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000])
def test_L33_L39_whatever_rate_is_declared_is_the_rate(tmp_path, rate):
    """Phones record at their own rate whatever they are asked for; 24 kHz read as 16 is slow."""
    chunks = slices(tone(rate, 1.0).tobytes(), rate // 50 * 2)
    samples, detected = heard(tmp_path, chunks, declared=f"audio/pcm;rate={rate}")
    assert detected.duration_s == 1.0
    assert abs(len(samples) - RATE) <= 2
    assert abs(loudest_hertz(samples) - 440) <= 2


def test_L32_stereo_is_mixed_down_also_at_the_target_rate(tmp_path):
    """Read as mono it lasts twice as long, at half the pitch."""
    left, right = tone(RATE, 1.0, 440.0), tone(RATE, 1.0, 880.0)
    both = np.stack([left, right], axis=1).tobytes()
    samples, detected = heard(tmp_path, [both], declared="audio/pcm;rate=16000;channels=2")
    assert (len(samples), detected.duration_s) == (RATE, 1.0)
    strength = np.abs(np.fft.rfft(samples))
    assert strength[440] == pytest.approx(strength[880], rel=0.01)


def test_L35_time_is_a_count_of_samples_and_never_drifts(tmp_path):
    """25 ms at 44.1 kHz are 1,102.5 samples: rounded chunks lose 11 µs each."""
    chunks = [tone(44_100, 1.0)[:1102].tobytes()] * 4_000
    samples, detected = heard(tmp_path, chunks, declared="audio/pcm;rate=44100", max_sound_s=200)
    assert detected.duration_s == 4_000 * 1102 / 44_100
    assert abs(len(samples) / RATE - detected.duration_s) < 0.001


def test_M2_the_last_sample_is_there_and_a_chunk_may_end_inside_one(tmp_path):
    sound = np.zeros(4_800, "<i2")
    sound[-400:] = 20_000
    samples, _ = heard(tmp_path, slices(sound.tobytes(), 333), declared="audio/pcm;rate=48000")
    assert len(samples) >= 1_600 and samples[1_550:1_590].min() > 15_000


FORMS = {
    "audio/wav": ("wav", "pcm_s16le"),
    "audio/flac": ("flac", "flac"),
    "audio/ogg": ("ogg", "libopus"),
    "audio/webm": ("webm", "libopus"),
    "audio/mpeg": ("mp3", "libmp3lame"),
    "audio/aac": ("adts", "aac"),
    "audio/mp4": ("ipod", "aac"),
}


@pytest.mark.parametrize("media_type", FORMS)
def test_a_recording_is_known_by_its_content_and_heard_whole(tmp_path, media_type):
    content = encoded(tone(48_000, 2.0), 48_000, tmp_path / "made", *FORMS[media_type])
    assert sound_type(content[:16]) == media_type
    samples, detected = heard(tmp_path, content=content, declared="audio/wav")
    assert detected.media_type == media_type
    assert detected.mismatch == (media_type != "audio/wav")
    assert abs(detected.duration_s - 2.0) < 0.1 and abs(len(samples) - 2 * RATE) < 0.1 * RATE
    assert abs(loudest_hertz(samples) - 440) <= 2


@pytest.mark.parametrize("size", [7, 1_000, 65_536])
def test_L36_M1_a_webm_recording_may_be_cut_anywhere(tmp_path, size):
    """Only the first slice of a recorder has a header: alone, the others decode to nothing."""
    content = encoded(tone(48_000, 2.0), 48_000, tmp_path / "made", "webm", "libopus")
    chunks = slices(content, size)
    chunks.insert(1, b"")  # M3: Safari sends empty ones
    samples, detected = heard(tmp_path, chunks, declared="audio/webm;codecs=opus")
    assert abs(len(samples) - 2 * RATE) < 0.05 * RATE and not detected.mismatch


def test_M1_a_new_header_goes_on_with_the_same_recording(tmp_path):
    content = encoded(tone(48_000, 1.0), 48_000, tmp_path / "made", "webm", "libopus")
    chunks = slices(content, 3_000) + slices(content, 3_000)
    samples, detected = heard(tmp_path, chunks, declared="audio/webm")
    assert abs(len(samples) - 2 * RATE) < 0.1 * RATE
    assert abs(detected.duration_s - 2.0) < 0.1


def test_a_cut_recording_is_heard_up_to_the_cut(tmp_path):
    content = encoded(tone(48_000, 2.0), 48_000, tmp_path / "made", "ogg", "libopus")
    samples, _ = heard(tmp_path, content=content[: len(content) * 2 // 3])
    assert 0.9 * RATE < len(samples) < 1.5 * RATE


def refusal(tmp_path, **what):
    with pytest.raises(EngineError) as caught:
        heard(tmp_path, **what)
    return caught.value.code


def test_what_is_no_sound_is_refused_with_its_code(tmp_path):
    assert refusal(tmp_path, chunks=[], declared="audio/webm") is EngineCode.MEDIA_EMPTY
    assert refusal(tmp_path, chunks=[], declared="audio/pcm;rate=8000") is EngineCode.MEDIA_EMPTY
    noise = b"\x1a\x45\xdf\xa3" + bytes(range(256)) * 20
    assert refusal(tmp_path, content=noise) is EngineCode.MEDIA_CORRUPT
    text = [b"this is no sound at all"]
    assert refusal(tmp_path, chunks=text, declared="audio/webm") is EngineCode.MEDIA_UNSUPPORTED
    long = tone(8_000, 3.0).tobytes()
    code = refusal(tmp_path, chunks=[long], declared="audio/pcm;rate=8000", max_sound_s=2.0)
    assert code is EngineCode.MEDIA_TOO_BIG


def test_a_decoder_loads_no_model_library():
    code = (
        "import sys, engine.perception.worker, engine.perception.sound, engine.perception.speech\n"
        "sys.exit(', '.join({'torch', 'ctranslate2', 'PIL'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
