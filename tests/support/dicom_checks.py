"""The outside programs that say whether a DICOM object is what it claims to be."""

from __future__ import annotations

import io
import subprocess
import zipfile
from pathlib import Path

import pydicom
from pydicom.dataset import Dataset


def unpacked(content: bytes) -> dict[str, Dataset]:
    """The objects of an export by the names of their files."""
    if not content.startswith(b"PK"):
        return {"only": pydicom.dcmread(io.BytesIO(content))}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {
            name.removesuffix(".dcm"): pydicom.dcmread(io.BytesIO(archive.read(name)))
            for name in archive.namelist()
        }


def faults(dataset: Dataset, folder: Path) -> list[str]:
    """What dciodvfy (dicom3tools) finds wrong; its warnings are left out."""
    path = folder / "checked.dcm"
    dataset.save_as(path, enforce_file_format=True)
    done = subprocess.run(["dciodvfy", str(path)], capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    assert lines, "dciodvfy says at least what kind of object it is"
    return [line for line in lines if line.startswith("Error")]


def report_text(dataset: Dataset, folder: Path) -> str:
    """The tree of a report as dsrdump (dcmtk) reads it; fails when it is not one."""
    path = folder / "report.dcm"
    dataset.save_as(path, enforce_file_format=True)
    done = subprocess.run(["dsrdump", "+Pl", "+U8", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
