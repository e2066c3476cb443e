"""Softcopy presentation states: the marks of one image as graphics that any viewer draws over it.

What people made and what nobody reviewed lie on layers of their own, UNREVIEWED in another colour.
"""

from __future__ import annotations

from typing import Any

import highdicom as hd
import numpy as np
from highdicom.pr import (
    AnnotationUnitsValues,
    GraphicAnnotation,
    GraphicLayer,
    GraphicObject,
    TextObject,
)
from PIL import ImageCms
from pydicom.dataset import Dataset

from protocol.state import AnnotationState
from server.export import case as c
from server.export.dicom_shapes import graphic
from server.export.dicom_source import MAKER, Source, uid

_PERSON, _MODEL = "PEOPLE", "UNREVIEWED"
# ST of an unformatted text value may have 1,024 bytes.
_MOST_LABEL_CHARS = 200
_GROUPED = {
    "PixelValueTransformationSequence": ("RescaleIntercept", "RescaleSlope", "RescaleType"),
    "FrameVOILUTSequence": ("WindowCenter", "WindowWidth", "VOILUTFunction"),
}
_PIXEL = AnnotationUnitsValues.PIXEL


def presentation(case: c.Case, source: Source, marks: list[AnnotationState]) -> Dataset:
    """A grayscale state of a gray image, a colour state of another."""
    header = source.header
    people = GraphicLayer(_PERSON, 1, "Marks of people", _colour(0, 200, 90))
    model = GraphicLayer(_MODEL, 2, c.UNREVIEWED_SENTENCE[:64], _colour(240, 150, 0))
    told: dict[str, Any] = {
        "referenced_images": [_grouped(header)],
        "series_instance_uid": uid(case, "states", source.name),
        "series_number": 900,
        "sop_instance_uid": uid(case, "state", source.name, str(case.snapshot.seq)),
        "instance_number": 1,
        "manufacturer": MAKER,
        "manufacturer_model_name": MAKER,
        "software_versions": "1",
        "device_serial_number": "1",
        "content_label": "MARKS",
        "content_description": "Marks of a consultation room",
        "graphic_layers": [people, model],
        "graphic_annotations": [
            _annotation(mark, source, model if c.is_unreviewed(mark.by) else people)
            for mark in marks
        ],
    }
    if header.SamplesPerPixel != 1:
        told["icc_profile"] = header.get("ICCProfile") or _srgb()
        return _sided(hd.pr.ColorSoftcopyPresentationState(**told), header)
    # The state overrides the image's photometric interpretation (PS3.3 C.11.6), so that of
    # MONOCHROME1 has to be said again.
    is_inverse = header.PhotometricInterpretation == "MONOCHROME1"
    shape = "INVERSE" if is_inverse else "IDENTITY"
    told["presentation_lut_transformation"] = hd.PresentationLUTTransformation(
        presentation_lut_shape=shape
    )
    return _sided(hd.pr.GrayscaleSoftcopyPresentationState(**told), header)


def _grouped(header: Dataset) -> Dataset:
    """The header of an older multi-frame image in the form of an enhanced one.

    highdicom looks for its values and windows in functional groups alone.
    """
    if "NumberOfFrames" not in header or "SharedFunctionalGroupsSequence" in header:
        return header
    shared = Dataset()
    for group, keywords in _GROUPED.items():
        item = Dataset()
        for keyword in keywords:
            if keyword in header:
                item.add(header[keyword])
        if keywords[0] in item and keywords[1] in item:
            setattr(shared, group, [item])
    grouped = Dataset()
    grouped.update(header)
    grouped.SharedFunctionalGroupsSequence = [shared]
    grouped.PerFrameFunctionalGroupsSequence = [Dataset() for _ in range(header.NumberOfFrames)]
    return grouped


def _sided(state: Dataset, header: Dataset) -> Dataset:
    # Type 2C of the series: of which side the image is, which may be unknown but not left out.
    state.Laterality = header.get("Laterality") or ""
    return state


def _annotation(mark: AnnotationState, source: Source, layer: GraphicLayer) -> GraphicAnnotation:
    header, annotation = source.header, mark.annotation
    kind, points = graphic(annotation.shape, int(header.Columns), int(header.Rows))
    number = annotation.target.frame - source.frames.start + 1
    words = annotation.label or annotation.severity
    if c.is_unreviewed(mark.by):
        words = f"[{c.UNREVIEWED}] {words}"
    corner = points.min(axis=0)
    text = TextObject(
        text_value=words.replace("\\", "/")[:_MOST_LABEL_CHARS],
        units=_PIXEL,
        anchor_point=(float(corner[0]), float(corner[1])),
        anchor_point_visible=False,
    )
    shape = GraphicObject(graphic_type=kind, graphic_data=points, units=_PIXEL)
    return GraphicAnnotation(
        referenced_images=[header],
        graphic_layer=layer,
        referenced_frame_number=number if source.is_multiframe else None,
        graphic_objects=[shape],
        text_objects=[text],
    )


def _srgb() -> bytes:
    """sRGB as an input device's profile: DICOM takes no display's (PS3.3 C.11.15)."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile[:12] + b"scnr" + profile[16:]


def _colour(red: int, green: int, blue: int) -> hd.color.CIELabColor:
    """sRGB as the CIELab that DICOM wants (PS3.3 C.10.7.1.1)."""
    srgb = np.array([red, green, blue]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    # To XYZ, adapted to the D50 of DICOM's profile connection space.
    matrix = [
        [0.4361, 0.3851, 0.1431],
        [0.2225, 0.7169, 0.0606],
        [0.0139, 0.0971, 0.7142],
    ]
    parts = np.array(matrix) @ linear / np.array([0.9642, 1.0, 0.8249])
    x, y, z = np.where(parts > 0.008856, np.cbrt(parts), 7.787 * parts + 16 / 116)
    return hd.color.CIELabColor(float(116 * y - 16), float(500 * (x - y)), float(200 * (y - z)))
