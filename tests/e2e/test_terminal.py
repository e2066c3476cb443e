"""The terminal client, run as a person runs it."""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path

from PIL import Image
from pydicom.data import get_testdata_file

from tests.support.filming import encoded
from tests.support.labsheet_render import render_sheet
from tests.support.product import ROOT
from tests.support.spoken import recording

CT = Path(get_testdata_file("CT_small.dcm")).read_bytes()


async def consilium(*arguments):
    command = [sys.executable, "-m", "consilium", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 90)
    return process.returncode, out.decode(), err.decode()


async def test_ask_sends_a_file_and_writes_the_answer(product, tmp_path):
    sheet = tmp_path / "sheet.png"
    sheet.write_bytes(render_sheet(5, "en").png)
    room = f"terminal-{uuid.uuid4().hex[:8]}"
    status, out, err = await consilium(
        "ask",
        "Which values are out of range?",
        *("--file", str(sheet), "--room", room, "--url", f"ws://127.0.0.1:{product.port}"),
    )
    assert status == 0, err
    assert len(out.strip()) > 20


async def test_ask_takes_a_recording_a_medical_image_and_a_video(product, tmp_path):
    frame = Image.new("RGB", (160, 120), "navy")
    files = {
        "dictation.wav": recording("beckett").read_bytes(),
        "ct.dcm": CT,
        "clip.mp4": encoded([(frame, 2.0)], ".mp4", tmp_path),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    given = [part for name in files for part in ("--file", str(tmp_path / name))]
    room = f"terminal-{uuid.uuid4().hex[:8]}"
    status, out, err = await consilium(
        *("ask", "What was said?", *given, "--room", room),
        *("--url", f"ws://127.0.0.1:{product.port}"),
    )
    assert status == 0, err
    assert "Fail better." in err, "what was said in the recording"
    assert "ct.dcm 128×128 read" in err and "clip.mp4 160×120 0:02 read" in err
    assert out.strip()


async def test_a_bad_file_is_one_line_and_a_status(product, tmp_path):
    empty = tmp_path / "empty.png"
    empty.touch()
    status, _, err = await consilium(
        *("ask", "what?", "--file", str(empty), "--url", f"ws://127.0.0.1:{product.port}")
    )
    assert status == 1
    assert "media_empty" in err
    assert "Traceback" not in err
