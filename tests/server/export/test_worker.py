"""The process that writes one export, as it is run."""

import json
import subprocess
import sys

import msgspec

from server.export.worker import Request
from tests.support import cases


def run(form, case):
    asked = msgspec.msgpack.encode(Request(format=form, case=case))
    command = [sys.executable, "-m", "server.export.worker"]
    done = subprocess.run(command, input=asked, capture_output=True, check=True)
    return done.stdout, json.loads(done.stderr.rpartition(b"\n")[2])


def test_the_file_comes_out_and_what_it_is():
    case = cases.room(cases.photo(), marks=cases.every_shape())
    content, outcome = run("coco", case)
    assert len(json.loads(content)["annotations"]) == 5
    assert outcome == {"refused": "", "media_type": "application/json", "suffix": "json"}


def test_a_refusal_is_told_and_no_file():
    content, outcome = run("dicom-sr", cases.room())
    assert content == b"" and outcome["refused"].startswith("no standing mark")


def test_warnings_of_libraries_do_not_hide_the_outcome(make_dicom):
    scan, files = make_dicom()
    marks = (cases.mark("m", cases.SHAPES["point"], "scan"),)
    content, outcome = run("dicom-sr", cases.room(scan, marks=marks, files=files))
    assert content.startswith(b"PK") and outcome["media_type"] == "application/zip"
