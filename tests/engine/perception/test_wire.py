import io

import pytest

from engine.api import Box, LabRow, Progress, TextRow
from engine.perception.wire import (
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    Accepted,
    Finished,
    Pixels,
    PixelsReady,
    Read,
    frame,
    next_request,
    parse_answer,
    payload_length,
)

ANSWERS = [
    Accepted(),
    Finished(timings={"ocr": 0.5}),
    PixelsReady(pixels=Pixels(path="p", width=3, height=2)),
    Progress(media="m", stage="ocr", done=1, total=2),
    TextRow(media="m", id="m.text.1", box=Box(0, 0, 1, 1), text="糖化血红蛋白", score=0.9),
    LabRow(
        media="m",
        id="m.lab.1",
        box=Box(0, 0, 9, 1),
        analyte="K",
        value="5.6",
        unit="mmol/L",
        range="3.5-5.3",
        flag="high",
        number=5.6,
        low=3.5,
        high=5.3,
        cells={"value": Box(3, 0, 1, 1)},
    ),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda one: type(one).__name__)
def test_an_answer_survives_the_pipe(answer):
    framed = frame(answer)
    assert payload_length(framed[:HEADER_BYTES]) == len(framed) - HEADER_BYTES
    assert parse_answer(framed[HEADER_BYTES:]) == answer


def test_a_request_survives_the_pipe_and_a_closed_pipe_ends_the_requests():
    request = Read(media="m", pixels=Pixels(path="p", width=1, height=1), cpu_s=3)
    stream = io.BytesIO(frame(request))
    assert next_request(stream) == request
    assert next_request(stream) is None


def test_a_frame_longer_than_any_message_is_refused():
    with pytest.raises(ValueError, match="longer than any message"):
        payload_length((MAX_FRAME_BYTES + 1).to_bytes(HEADER_BYTES, "big"))
