"""The images that DICOM exports speak of: the room's DICOM files, and its other pictures.

For whoever may not see identities a header is made anew from a list of what is told (geometry,
depth, windows), as perception does it; UIDs are stand-ins made from the room's address, so objects
of one export belong together and lead nobody to the file. A photo or a still becomes a Secondary
Capture of its upright pixels, so that a mark on it has an image to be on.
"""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pydicom
from highdicom._standard_utils import does_iod_have_pixel_data, is_multiframe_image
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import UID, ExplicitVRLittleEndian, SecondaryCaptureImageStorage

from protocol.state import AssetState
from server.export import case as c

MAKER = "Consilium"
# What all Secondary Captures of one export may have: as raw RGB they are thrice as many bytes.
MAX_CAPTURED_PIXELS = 200_000_000
_NAMES = uuid.UUID("5b9e7f1c-1f39-5c8b-9a1e-3c7d0a4b2e55")
# Types 1 and 2 of the patient, study and equipment that every object needs, known or not.
_NEEDED = (
    *("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime"),
    *("AccessionNumber", "ReferringPhysicianName", "StudyID"),
)
_DATE = re.compile(r"(\d{8})?")
_TIME = re.compile(r"(\d{2}(\d{2}(\d{2}(\.\d{1,6})?)?)?)?")
_TOLD = (
    *("SOPClassUID", "Modality", "Rows", "Columns", "NumberOfFrames", "SamplesPerPixel"),
    *("PhotometricInterpretation", "PlanarConfiguration", "BitsAllocated", "BitsStored"),
    *("HighBit", "PixelRepresentation", "PixelSpacing", "ImagerPixelSpacing", "PixelAspectRatio"),
    *("SliceThickness", "SpacingBetweenSlices", "ImageOrientationPatient"),
    *("ImagePositionPatient", "RescaleSlope", "RescaleIntercept", "RescaleType"),
    *("WindowCenter", "WindowWidth", "VOILUTFunction"),
)
_LOOKUPS = ("ModalityLUTSequence", "VOILUTSequence")
_LOOKUP_TOLD = ("LUTDescriptor", "LUTData", "ModalityLUTType")
_GROUPS = ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence")
_GROUP_TOLD = {
    "PixelMeasuresSequence": ("PixelSpacing", "SliceThickness", "SpacingBetweenSlices"),
    "PlanePositionSequence": ("ImagePositionPatient",),
    "PlaneOrientationSequence": ("ImageOrientationPatient",),
    "PixelValueTransformationSequence": ("RescaleSlope", "RescaleIntercept", "RescaleType"),
    "FrameVOILUTSequence": ("WindowCenter", "WindowWidth", "VOILUTFunction"),
}


@dataclass(frozen=True, slots=True)
class Source:
    """An image that marks are on. `frames` are the room's frame numbers, in the image's order.

    `captured` says that the image was made here and goes out with what refers to it.
    """

    asset: AssetState
    header: Dataset
    frames: range
    captured: bool = False

    @property
    def is_multiframe(self) -> bool:
        """Whether a reference has to name its frame."""
        return "NumberOfFrames" in self.header

    @property
    def is_of_its_class(self) -> bool:
        """Whether its class has so many frames; some files of one-frame classes have more."""
        return not self.is_multiframe or is_multiframe_image(self.header)

    @property
    def name(self) -> str:
        """What its files are called; no two are the same."""
        is_still = self.captured and self.frames != range(1)
        return f"{self.asset.asset}-{self.frames.start}" if is_still else self.asset.asset


def sources(case: c.Case) -> Iterator[Source]:
    """The images with standing marks whose bytes are here; a still of a video is one of its own."""
    marked: dict[str, set[int]] = {}
    assets: dict[str, AssetState] = {}
    for mark, asset in c.standing_marks(case):
        marked.setdefault(asset.asset, set()).add(mark.annotation.target.frame)
        assets[asset.asset] = asset
    left = MAX_CAPTURED_PIXELS
    for name, asset in assets.items():
        files = case.files_of(asset)
        if asset.media_type == c.DICOM:
            content = c.read(files.original)
            if content and asset.imaging is not None and (found := _image(content)) is not None:
                yield _of_file(case, asset, found)
            continue
        for frame in sorted(marked[name]):
            content = c.read(files.frames.get(frame, "") if asset.keyframes else files.picture)
            width, height = c.frame_size(asset, frame)
            if content and width * height <= left:
                left -= width * height
                yield _captured(case, asset, content, frame)


def uid(case: c.Case, *names: str) -> UID:
    """A UID that the same thing of a room always has (PS3.5 B.2)."""
    name = "/".join((case.room_address, *names))
    return UID(f"2.25.{uuid.uuid5(_NAMES, name).int}")


def _image(content: bytes) -> Dataset | None:
    """The file's header; None when its class is no image of the standard, which none may cite."""
    found = pydicom.dcmread(io.BytesIO(content), stop_before_pixels=True)
    try:
        is_image = does_iod_have_pixel_data(found.get("SOPClassUID", ""))
    except KeyError:
        return None
    return found if is_image else None


def _of_file(case: c.Case, asset: AssetState, found: Dataset) -> Source:
    header = found if case.may_identify else _told(case, asset, found)
    if not case.may_identify:
        header.file_meta = FileMetaDataset()
        header.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    if asset.frames > 1 or is_multiframe_image(header):
        header.NumberOfFrames = asset.frames
    elif "NumberOfFrames" in header:
        del header.NumberOfFrames
    for keyword in _NEEDED:
        if keyword not in header or not _is_sound(keyword, header[keyword].value):
            setattr(header, keyword, "")
    stand_ins = {
        "StudyInstanceUID": ("study", str(found.get("StudyInstanceUID", asset.asset))),
        "SeriesInstanceUID": ("series", asset.asset),
        "SOPInstanceUID": ("image", asset.asset),
    }
    for keyword, names in stand_ins.items():
        if not header.get(keyword):
            setattr(header, keyword, uid(case, *names))
    return Source(asset, header, range(asset.frames))


def _is_sound(keyword: str, value: Any) -> bool:
    """Whether a date or time is one; files have others, which no new object may repeat."""
    form = _DATE if keyword.endswith("Date") else _TIME if keyword.endswith("Time") else None
    return form is None or form.fullmatch(str(value or "")) is not None


def _told(case: c.Case, asset: AssetState, found: Dataset) -> Dataset:
    """A header that says of whom, where and when nothing."""
    header = _picked(found, _TOLD)
    for keyword in _LOOKUPS:
        if keyword in found:
            setattr(header, keyword, [_picked(item, _LOOKUP_TOLD) for item in found[keyword].value])
    for keyword in _GROUPS:
        if keyword in found:
            setattr(header, keyword, [_group(item) for item in found[keyword].value])
    if "FrameOfReferenceUID" in found:
        header.FrameOfReferenceUID = uid(case, "space", asset.asset)
    # One study for each file: whether two are of one study tells something of them.
    header.StudyInstanceUID = uid(case, "study", asset.asset)
    return header


def _group(item: Dataset) -> Dataset:
    told = Dataset()
    for keyword, names in _GROUP_TOLD.items():
        if keyword in item:
            setattr(told, keyword, [_picked(each, names) for each in item[keyword].value])
    return told


def _picked(dataset: Dataset, keywords: tuple[str, ...]) -> Dataset:
    told = Dataset()
    for keyword in keywords:
        if keyword in dataset:
            told.add(dataset[keyword])
    return told


def _captured(case: c.Case, asset: AssetState, content: bytes, frame: int) -> Source:
    """The upright picture as a Secondary Capture, pixel by pixel."""
    Image.MAX_IMAGE_PIXELS = MAX_CAPTURED_PIXELS
    with Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "WEBP")) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    image = Dataset()
    image.file_meta = FileMetaDataset()
    image.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    image.SOPClassUID = SecondaryCaptureImageStorage
    # All that is no DICOM in a room is one study of its own.
    image.StudyInstanceUID = uid(case, "study")
    image.SeriesInstanceUID = uid(case, "series", asset.asset)
    image.SOPInstanceUID = uid(case, "image", asset.asset, str(frame))
    for keyword in _NEEDED:
        setattr(image, keyword, "")
    told: dict[str, Any] = {
        "SpecificCharacterSet": "ISO_IR 192",
        "Modality": "OT",
        "ConversionType": "DI",
        "Manufacturer": MAKER,
        "SeriesNumber": 1,
        "InstanceNumber": frame + 1,
        "PatientOrientation": "",
        "Laterality": "",
        "SamplesPerPixel": 3,
        "PhotometricInterpretation": "RGB",
        "PlanarConfiguration": 0,
        "Rows": pixels.shape[0],
        "Columns": pixels.shape[1],
        "BitsAllocated": 8,
        "BitsStored": 8,
        "HighBit": 7,
        "PixelRepresentation": 0,
    }
    for keyword, value in told.items():
        setattr(image, keyword, value)
    if asset.media_type in ("image/jpeg", "image/webp") or asset.keyframes:
        image.LossyImageCompression = "01"
        image.LossyImageCompressionMethod = "ISO_10918_1"
        image.LossyImageCompressionRatio = round(max(pixels.size / len(content), 1.0), 2)
    image.PixelData = pixels.tobytes() + b"\0" * (pixels.size % 2)
    return Source(asset, image, range(frame, frame + 1), captured=True)
