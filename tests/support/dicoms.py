"""DICOM files for the tests: those that pydicom ships, and ones made here with known tags."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pydicom.data
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

# What a file says of people, places and times; each is to be found nowhere else.
IDENTITIES = {
    "PatientName": "Zweistein^Albertine",
    "PatientID": "MRN-77120934",
    "PatientBirthDate": "19370412",
    "PatientAddress": "Holunderweg 77",
    "OtherPatientIDs": "ALT-5511823",
    "InstitutionName": "Klinikum Quellenhof",
    "ReferringPhysicianName": "Grauhuber^Leopold",
    "OperatorsName": "Spitzweg^Carlotta",
    "AccessionNumber": "ACC-9912837",
    "StudyID": "STU-4471",
    "StudyDate": "20230517",
    "StudyDescription": "Thorax Zweistein privat",
    "SeriesDescription": "Frau Z. nativ",
    "ImageComments": "call Holunderweg first",
    "StationName": "KQH-CT-03",
    "DeviceSerialNumber": "SN-300412-7",
    "StudyInstanceUID": "1.2.826.0.1.3680043.8.498.71717171",
    "SeriesInstanceUID": "1.2.826.0.1.3680043.8.498.72727272",
    "SOPInstanceUID": "1.2.826.0.1.3680043.8.498.73737373",
    "WindowCenterWidthExplanation": "Zweistein-window",
}


def shipped(name: str) -> Path:
    """A file that comes inside pydicom's wheel; nothing is downloaded."""
    return Path(pydicom.data.__file__).parent / "test_files" / name


def gray(samples: np.ndarray, *, stored: int = 0, **tags: Any) -> Dataset:
    """A gray picture, or a series when `samples` has three dimensions, with every identity."""
    bits = samples.dtype.itemsize * 8
    dataset = _bare(samples.shape[-2], samples.shape[-1], bits, stored or bits)
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.PixelRepresentation = int(samples.dtype.kind == "i")
    if samples.ndim == 3:
        dataset.NumberOfFrames = samples.shape[0]
    dataset.PixelData = samples.tobytes()
    return _tagged(dataset, tags)


def rgb(samples: np.ndarray, **tags: Any) -> Dataset:
    """A picture of 8-bit colours."""
    dataset = _bare(samples.shape[-3], samples.shape[-2], 8, 8)
    dataset.SamplesPerPixel, dataset.PlanarConfiguration = 3, 0
    dataset.PhotometricInterpretation = "RGB"
    dataset.PixelRepresentation = 0
    dataset.PixelData = samples.tobytes() + b"\0" * (samples.size % 2)
    return _tagged(dataset, tags)


def table(first: int, bits: int, entries: list[int]) -> Sequence:
    """A VOI or modality table."""
    item = Dataset()
    item.add_new("LUTDescriptor", "SS" if first < 0 else "US", [len(entries), first, bits])
    item.add_new("LUTData", "US", entries)
    item.ModalityLUTType = "US"
    return Sequence([item])


def content(dataset: Dataset) -> bytes:
    """The file."""
    stream = io.BytesIO()
    dataset.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def saved(dataset: Dataset, path: Path) -> str:
    """Put the file there and return its path."""
    path.write_bytes(content(dataset))
    return str(path)


def _bare(rows: int, columns: int, allocated: int, stored: int) -> Dataset:
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = CTImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = IDENTITIES["SOPInstanceUID"]
    dataset.SOPClassUID = CTImageStorage
    dataset.Rows, dataset.Columns = rows, columns
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = allocated, stored, stored - 1
    return dataset


def _tagged(dataset: Dataset, tags: dict[str, Any]) -> Dataset:
    for keyword, value in {**IDENTITIES, "Modality": "CT", **tags}.items():
        setattr(dataset, keyword, value)
    return dataset
