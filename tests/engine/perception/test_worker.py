import io
import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from engine.api import Box, Detected, EngineCode, LabRow, MediaFailed, TextRow
from engine.perception.ocr import TextReader
from engine.perception.wire import Accepted, Decode, Pixels, Read, frame
from engine.perception.worker import Worker, look
from tests.support.encoded import encoded


@pytest.fixture(autouse=True)
def cpu_limit():
    """A worker in this process limits it; the rest of the tests are not to die of that."""
    before = resource.getrlimit(resource.RLIMIT_CPU)
    yield
    resource.setrlimit(resource.RLIMIT_CPU, before)


def worker():
    return Worker(
        ocr_threads=1,
        ocr_side_px=640,
        ocr_batch=4,
        ocr_min_score=0.5,
        speech_model="",
        speech_threads=1,
    )


def test_importing_the_worker_loads_neither_torch_nor_a_decoder():
    loaded = subprocess.run(
        [sys.executable, "-c", "import engine.perception.worker, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"torch", "PIL.Image", "onnxruntime", "rapidocr", "cv2"} & set(loaded)


def test_a_fault_of_ours_is_an_answer_without_details(tmp_path, capfd):
    pixels = Pixels(path=str(tmp_path / "not there"), width=3, height=2)
    answers = list(worker().answers(Read(media="m", pixels=pixels, cpu_s=100), io.BytesIO()))
    assert answers[0] == Accepted()
    assert isinstance(answers[-1], MediaFailed) and answers[-1].code is EngineCode.INTERNAL
    assert "not there" not in answers[-1].message + capfd.readouterr().err


def test_a_closed_pipe_ends_the_worker():
    answers = io.BytesIO()
    worker().serve(io.BytesIO(b""), answers)
    assert answers.getvalue() == b""


def test_a_worker_whose_parent_is_gone_ends_by_its_own_cpu_clock(tmp_path):
    """A decoder in an endless loop would outlive a killed parent for ever."""
    script = "from engine.perception.worker import limit_cpu\nlimit_cpu(1)\nwhile True: pass"
    ended = subprocess.run([sys.executable, "-c", script], timeout=30, check=False)
    assert ended.returncode == -signal.SIGXCPU


def test_the_worker_ends_when_its_parent_closes_the_pipe(tmp_path):
    path = tmp_path / "empty"
    path.write_bytes(b"")
    request = Decode(
        media="m",
        path=str(path),
        derived_dir=str(tmp_path / "derived"),
        declared_type=None,
        max_bytes=10,
        max_pixels=10,
        max_series_pixels=10,
        max_ratio=2_000,
        cpu_s=10,
    )
    arguments = ["--role=decode", "--memory-bytes=3000000000", "--ocr-threads=1"]
    arguments += ["--ocr-side-px=640", "--ocr-batch=4", "--ocr-min-score=0.5"]
    arguments += ["--speech-model=", "--speech-threads=1"]
    ended = subprocess.run(
        [sys.executable, "-m", "engine.perception.worker", *arguments],
        input=frame(request),
        capture_output=True,
        timeout=30,
        check=True,
        env=os.environ,
    )
    assert b"media_empty" in ended.stdout


@pytest.mark.parametrize(
    ("first", "printed", "flag"), [("56", "5.6", "unknown"), ("45", "45", "high")]
)
def test_a_value_abnormal_by_a_lost_point_is_flagged_only_when_a_second_look_agrees(
    first, printed, flag
):
    picture = Image.new("RGB", (200, 60), "white")
    ImageDraw.Draw(picture).text((20, 16), printed, fill="black", font=ImageFont.load_default(22))
    box = Box(18, 16, 40, 24)
    row = LabRow(
        media="m",
        id="m.lab.1",
        box=box,
        analyte="Glucose",
        value=first,
        unit="",
        range="3.9-6.1",
        flag="high",
        number=float(first),
        low=3.9,
        high=6.1,
        cells={"value": box},
    )
    text = TextRow(media="m", id="m.text.1", box=box, text=first, score=1.0)
    looker = worker()
    looker._reader = TextReader(threads=1, side_px=640, batch=4, min_score=0.5)
    [settled] = looker._settled([row], [text], np.asarray(picture))
    assert settled.flag == flag
    assert settled.doubt == ("reading" if flag == "unknown" else None)


FORMS = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "TIFF": "image/tiff",
    "BMP": "image/bmp",
    "AVIF": "image/avif",
    "HEIF": "image/heic",
}


@pytest.mark.parametrize("declared", [None, *FORMS.values(), "text/html", "application/dicom"])
@pytest.mark.parametrize(("form", "media_type"), FORMS.items())
def test_a_declared_type_that_lies_is_reported_and_not_obeyed(tmp_path, form, media_type, declared):
    path = tmp_path / "upload.exe"
    path.write_bytes(encoded(Image.new("RGB", (40, 20), "red"), form))
    request = Decode(
        media="m",
        path=str(path),
        derived_dir=str(tmp_path / "derived"),
        declared_type=declared,
        max_bytes=10**6,
        max_pixels=10**6,
        max_series_pixels=10**6,
        max_ratio=2_000,
        cpu_s=100,
    )
    detected = next(one for one in look(request) if isinstance(one, Detected))
    assert (detected.media_type, detected.width) == (media_type, 40)
    assert detected.mismatch is (declared not in (None, media_type))
