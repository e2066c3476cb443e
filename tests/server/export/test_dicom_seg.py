"""Segmentations, read back by highdicom."""

import highdicom as hd
import numpy as np
from pydicom.dataset import Dataset
from pydicom.uid import EnhancedCTImageStorage

from server.export import dicom_seg, dicom_sr
from server.export.dicom_shapes import mask
from server.export.dicom_source import Source, sources
from tests.support import cases, dicoms
from tests.support.dicom_checks import unpacked


def enhanced_ct():
    """An enhanced CT of three frames of 80 x 120, 1 mm apart."""
    dataset = dicoms.gray(np.zeros((3, 120, 80), np.uint16))
    dataset.SOPClassUID = EnhancedCTImageStorage
    dataset.file_meta.MediaStorageSOPClassUID = EnhancedCTImageStorage
    dataset.FrameOfReferenceUID = "1.2.826.0.1.3680043.8.498.74747474"
    shared = Dataset()
    orientation, measures = Dataset(), Dataset()
    orientation.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    measures.PixelSpacing, measures.SliceThickness = [0.5, 0.5], 1
    shared.PlaneOrientationSequence = [orientation]
    shared.PixelMeasuresSequence = [measures]
    dataset.SharedFunctionalGroupsSequence = [shared]
    dataset.PerFrameFunctionalGroupsSequence = []
    for z in range(3):
        position, frame = Dataset(), Dataset()
        position.ImagePositionPatient = [0, 0, z]
        frame.PlanePositionSequence = [position]
        dataset.PerFrameFunctionalGroupsSequence.append(frame)
    return dataset


def objects(asset, files, marks):
    return unpacked(dicom_sr.write(cases.room(asset, marks=marks, files=files)))


def test_each_shape_with_an_inside_is_a_segment_of_its_pixels(make_dicom):
    scan, files = make_dicom()
    marks = cases.every_shape("scan")
    seg = hd.seg.Segmentation.from_dataset(objects(scan, files, marks)["seg-scan-1"])
    inner = ["rectangle", "ellipse", "polygon"]
    assert [d.SegmentLabel for d in seg.SegmentSequence] == [f"a {name}" for name in inner]
    source = seg.get_source_image_uids()[0][2]
    found = seg.get_pixels_by_source_instance([source])[0]
    for number, name in enumerate(inner):
        assert np.array_equal(found[..., number] == 1, mask(cases.SHAPES[name], 80, 120)), name


def test_what_the_model_made_is_automatic_and_unreviewed(make_dicom):
    scan, files = make_dicom()
    marks = (
        cases.mark("mine", cases.SHAPES["rectangle"], "scan", label="x" * 90),
        cases.mark("its", cases.SHAPES["rectangle"], "scan", label="y", by=cases.MODEL),
    )
    mine, its = objects(scan, files, marks)["seg-scan-1"].SegmentSequence
    assert (mine.SegmentAlgorithmType, its.SegmentAlgorithmType) == ("MANUAL", "AUTOMATIC")
    assert its.SegmentLabel == "[unreviewed] y" and len(mine.SegmentLabel) == 64


def test_what_has_no_place_in_space_or_no_inside_has_no_segmentation(make_dicom, negative):
    scan, files = make_dicom()
    points = (cases.mark("m", cases.SHAPES["point"], "scan"),)
    assert not any(name.startswith("seg") for name in objects(scan, files, points))
    gray, files = negative
    boxes = (cases.mark("m", cases.SHAPES["rectangle"], "negative"),)
    assert not any(name.startswith("seg") for name in objects(gray, files, boxes))


def test_an_image_too_big_to_be_masked_has_none(make_dicom):
    scan, files = make_dicom()
    marks = cases.every_shape("scan")
    (source,) = sources(cases.room(scan, marks=marks, files=files))
    assert dicom_seg.can_hold(source, list(marks))
    source.header.Rows = source.header.Columns = 60_000
    assert not dicom_seg.can_hold(Source(scan, source.header, range(1)), list(marks))


def test_a_segment_on_an_enhanced_series_lies_on_its_frame(make_dicom):
    series, files = make_dicom("enhanced", enhanced_ct(), 3)
    marks = (cases.mark("m", cases.SHAPES["rectangle"], "enhanced", frame=2, label="here"),)
    found = objects(series, files, marks)
    assert set(found) == {"sr-1", "gsps-enhanced", "seg-enhanced-1"}
    seg = hd.seg.Segmentation.from_dataset(found["seg-enhanced-1"])
    source = seg.get_source_image_uids()[0][2]
    pixels = seg.get_pixels_by_source_frame(source, [1, 3], ignore_spatial_locations=True)
    wanted = mask(cases.SHAPES["rectangle"], 80, 120)
    assert not pixels[0].any() and np.array_equal(pixels[1, ..., 0] == 1, wanted)


def test_a_series_that_does_not_place_each_of_its_frames_has_none(make_dicom):
    dataset = enhanced_ct()
    del dataset.PerFrameFunctionalGroupsSequence[2]
    series, files = make_dicom("enhanced", dataset, 3)
    marks = (cases.mark("m", cases.SHAPES["rectangle"], "enhanced", frame=1),)
    assert "seg-enhanced-1" not in objects(series, files, marks)
