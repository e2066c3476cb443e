"""Segmentations: the inside of each mark that has one, as a binary mask on its frame."""

from __future__ import annotations

import highdicom as hd
import numpy as np
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes

from protocol.state import AnnotationState
from server.export import case as c
from server.export.dicom_shapes import encloses, mask
from server.export.dicom_source import MAKER, Source, uid

# All frames of an image are laid out for each segment before the empty ones are left out.
MAX_MASK_BYTES = 256 * 1024 * 1024
# What a mark encloses is nobody's finding: these say no more than that somebody chose a region.
_CATEGORY = codes.cid7150.SpatialAndRelationalConcept
_TYPE = codes.DCM.SelectedRegion
_PLACE = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing")
_GROUPED_PLACE = ("PlanePositionSequence", "PlaneOrientationSequence", "PixelMeasuresSequence")


def can_hold(source: Source, marks: list[AnnotationState]) -> bool:
    """Whether there is something to segment and the image is one that a SEG can refer to."""
    header = source.header
    frames = len(source.frames)
    bytes_each = frames * int(header.Rows) * int(header.Columns)
    if source.captured or bytes_each > MAX_MASK_BYTES:
        return False
    return _is_placed(header) and any(encloses(each.annotation.shape) for each in marks)


def _is_placed(header: Dataset) -> bool:
    """Whether each frame says where it lies: by nothing else could a SEG's frames be told apart."""
    if not header.get("FrameOfReferenceUID"):
        return False
    if "NumberOfFrames" not in header:
        return all(header.get(keyword) is not None for keyword in _PLACE)
    each = header.get("PerFrameFunctionalGroupsSequence", ())
    if len(each) != header.NumberOfFrames:
        return False
    groups = [*header.get("SharedFunctionalGroupsSequence", ()), each[0]]
    return all(any(keyword in group for group in groups) for keyword in _GROUPED_PLACE)


def segmentations(case: c.Case, source: Source, marks: list[AnnotationState]) -> list[Dataset]:
    """As many objects as their masks need; segments are numbered within each."""
    inner = [each for each in marks if encloses(each.annotation.shape)]
    header = source.header
    each_bytes = len(source.frames) * int(header.Rows) * int(header.Columns)
    at_once = max(1, MAX_MASK_BYTES // each_bytes)
    return [
        _segmentation(case, source, inner[start : start + at_once], start // at_once + 1)
        for start in range(0, len(inner), at_once)
    ]


def _segmentation(
    case: c.Case, source: Source, marks: list[AnnotationState], number: int
) -> Dataset:
    header = source.header
    rows, columns = int(header.Rows), int(header.Columns)
    pixels = np.zeros((len(source.frames), rows, columns, len(marks)), np.uint8)
    for index, each in enumerate(marks):
        annotation = each.annotation
        frame = annotation.target.frame - source.frames.start
        pixels[frame, :, :, index] = mask(annotation.shape, columns, rows)
    return hd.seg.Segmentation(
        source_images=[header],
        pixel_array=pixels,
        segmentation_type=hd.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=[_description(case, each, n) for n, each in enumerate(marks, 1)],
        series_instance_uid=uid(case, "segmentations", source.name),
        series_number=901,
        sop_instance_uid=uid(
            case, "segmentation", source.name, str(number), str(case.snapshot.seq)
        ),
        instance_number=number,
        manufacturer=MAKER,
        manufacturer_model_name=MAKER,
        software_versions="1",
        device_serial_number="1",
        content_label="MARKS",
        content_description="Marks of a consultation room",
    )


def _description(case: c.Case, mark: AnnotationState, number: int) -> hd.seg.SegmentDescription:
    label = mark.annotation.label or mark.annotation.severity
    is_model = c.is_unreviewed(mark.by)
    if is_model:
        label = f"[{c.UNREVIEWED}] {label}"
    algorithm = hd.AlgorithmIdentificationSequence(
        name=mark.by.name or MAKER,
        family=codes.cid7162.ArtificialIntelligence,
        version="1",
    )
    return hd.seg.SegmentDescription(
        segment_number=number,
        segment_label=label.replace("\\", "/")[:64],
        segmented_property_category=_CATEGORY,
        segmented_property_type=_TYPE,
        algorithm_type="AUTOMATIC" if is_model else "MANUAL",
        algorithm_identification=algorithm if is_model else None,
        tracking_uid=uid(case, "mark", mark.annotation.id),
        tracking_id=mark.annotation.id,
    )
