"""Marks as DICOM: a Structured Report (TID 1500) for each study, with GSPS and SEG beside it.

Each mark is a planar region (TID 1410) on its image and frame, with its label as a comment, its
author as its observer, and its severity and review status as coded evaluations. A report is
PRELIMINARY and UNVERIFIED; what a model made has a device for its observer and an algorithm.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from typing import Any

import highdicom as hd
from highdicom.sr import (
    AlgorithmIdentification,
    CodedConcept,
    DeviceObserverIdentifyingAttributes,
    ImageRegion,
    MeasurementReport,
    ObservationContext,
    ObserverContext,
    PersonObserverIdentifyingAttributes,
    PlanarROIMeasurementsAndQualitativeEvaluations,
    QualitativeEvaluation,
    RelationshipTypeValues,
    SourceImageForRegion,
    TextContentItem,
    TrackingIdentifier,
)
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes

from protocol.state import AnnotationState
from server.export import case as c
from server.export.dicom_gsps import presentation
from server.export.dicom_seg import can_hold, segmentations
from server.export.dicom_shapes import graphic
from server.export.dicom_source import MAKER, Source, sources, uid

# A mark takes 12 ms of the 120 s that a writer has, so these take half of them.
MAX_MARKS = 5_000
_SCHEME = "99CONSILIUM"
_SEVERITY = CodedConcept("severity", _SCHEME, "Severity")
_REVIEW = CodedConcept("review", _SCHEME, "Review status")
_STATUS = {
    True: CodedConcept(c.UNREVIEWED, _SCHEME, c.UNREVIEWED_SENTENCE[:64]),
    False: CodedConcept("made-by-person", _SCHEME, "Made by a person"),
}
# The earliest that a zip can say. The same room gives the same archive but for the objects' dates.
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
_NOTHING = "no standing mark is on a DICOM image or a picture whose bytes are here"
Placed = list[tuple[Source, list[AnnotationState]]]


def write(case: c.Case) -> bytes:
    """One DICOM file, or a zip when there are several; raises `NotExportable`."""
    objects = _objects(case)
    if len(objects) == 1:
        return _encoded(objects[0][1])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, dataset in objects:
            entry = zipfile.ZipInfo(f"{name}.dcm", _ZIP_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, _encoded(dataset))
    return stream.getvalue()


def _objects(case: c.Case) -> list[tuple[str, Dataset]]:
    with warnings.catch_warnings():
        # What hospitals' files have wrong is told to whoever made them, not here.
        warnings.simplefilter("ignore")
        placed = _placed(case)
        if not placed:
            raise c.NotExportable(_NOTHING)
        if (count := sum(len(marks) for _, marks in placed)) > MAX_MARKS:
            raise c.NotExportable(f"{count:,} marks are too many for DICOM: {MAX_MARKS:,} at most")
        objects: list[tuple[str, Dataset]] = []
        for number, (study, group) in enumerate(_by_study(placed).items(), 1):
            objects.append((f"sr-{number}", _report(case, study, group)))
        for source, marks in placed:
            if source.captured:
                objects.append((f"image-{source.name}", source.header))
            if source.is_of_its_class:
                objects.append((f"gsps-{source.name}", presentation(case, source, marks)))
            if can_hold(source, marks):
                for number, each in enumerate(segmentations(case, source, marks), 1):
                    objects.append((f"seg-{source.name}-{number}", each))
    return objects


def _placed(case: c.Case) -> Placed:
    marks: dict[str, list[AnnotationState]] = {}
    for mark, asset in c.standing_marks(case):
        marks.setdefault(asset.asset, []).append(mark)
    placed = []
    for source in sources(case):
        on = [
            mark
            for mark in marks[source.asset.asset]
            # A still picture is frame 0 to everybody, whatever a mark on it says.
            if mark.annotation.target.frame in source.frames
        ]
        if on:
            placed.append((source, on))
    return placed


def _by_study(placed: Placed) -> dict[str, Placed]:
    studies: dict[str, Placed] = {}
    for source, marks in placed:
        studies.setdefault(str(source.header.StudyInstanceUID), []).append((source, marks))
    return studies


def _report(case: c.Case, study: str, placed: Placed) -> Dataset:
    device = DeviceObserverIdentifyingAttributes(
        uid=uid(case, "device"), name=MAKER, manufacturer_name=MAKER
    )
    context = ObservationContext(observer_device_context=ObserverContext(codes.DCM.Device, device))
    groups = [_group(case, source, mark) for source, marks in placed for mark in marks]
    report = MeasurementReport(
        observation_context=context,
        procedure_reported=CodedConcept("consultation", _SCHEME, "Consultation on pictures"),
        imaging_measurements=groups,
        title=codes.DCM.ImagingMeasurementReport,
    )
    told: dict[str, Any] = {
        "series_instance_uid": uid(case, "reports", study),
        "sop_instance_uid": uid(case, "report", study, str(case.snapshot.seq)),
    }
    return hd.sr.ComprehensiveSR(
        evidence=[source.header for source, _ in placed],
        content=report,
        series_number=902,
        instance_number=1,
        manufacturer=MAKER,
        is_complete=True,
        is_final=False,
        is_verified=False,
        **told,
    )


def _group(
    case: c.Case, source: Source, mark: AnnotationState
) -> PlanarROIMeasurementsAndQualitativeEvaluations:
    header, annotation = source.header, mark.annotation
    kind, points = graphic(annotation.shape, int(header.Columns), int(header.Rows))
    number = annotation.target.frame - source.frames.start + 1
    image = SourceImageForRegion(
        referenced_sop_class_uid=header.SOPClassUID,
        referenced_sop_instance_uid=header.SOPInstanceUID,
        referenced_frame_numbers=[number] if source.is_multiframe else None,
    )
    is_model = c.is_unreviewed(mark.by)
    severity = CodedConcept(annotation.severity, _SCHEME, annotation.severity.capitalize())
    group = PlanarROIMeasurementsAndQualitativeEvaluations(
        tracking_identifier=TrackingIdentifier(
            uid=uid(case, "mark", annotation.id), identifier=annotation.id
        ),
        referenced_region=ImageRegion(kind, points, image),
        algorithm_id=AlgorithmIdentification(mark.by.name or MAKER, "1") if is_model else None,
        qualitative_evaluations=[
            QualitativeEvaluation(_SEVERITY, severity),
            QualitativeEvaluation(_REVIEW, _STATUS[is_model]),
        ],
    )
    content = group[0].ContentSequence
    for item in _observer(case, mark):
        content.append(item)
    label = annotation.label.strip()
    if label:
        content.append(
            TextContentItem(
                codes.DCM.Comment, label, relationship_type=RelationshipTypeValues.CONTAINS
            )
        )
    return group


def _observer(case: c.Case, mark: AnnotationState) -> ObserverContext:
    name = mark.by.name.strip() or mark.by.id
    if c.is_unreviewed(mark.by):
        return ObserverContext(
            codes.DCM.Device,
            DeviceObserverIdentifyingAttributes(uid=uid(case, "device", name), name=name),
        )
    # A person's name is free text in a room; `^`, `=` and `\` would part it (PS3.5 6.2.1).
    plain = "".join(" " if letter in "^=\\" else letter for letter in name)[:64]
    return ObserverContext(
        codes.DCM.Person,
        PersonObserverIdentifyingAttributes(
            name=plain, organization_name=mark.by.department.strip() or None
        ),
    )


def _encoded(dataset: Dataset) -> bytes:
    # Rooms are in every language, whatever that of an image is.
    dataset.SpecificCharacterSet = "ISO_IR 192"
    stream = io.BytesIO()
    dataset.save_as(stream, enforce_file_format=True)
    return stream.getvalue()
