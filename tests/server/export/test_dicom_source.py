"""Which images marks are on, and what is told of them."""

import msgspec
import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import ComprehensiveSRStorage, RTDoseStorage

from server.export import dicom_source
from server.export.case import Files
from tests.support import cases, dicoms


def test_a_header_for_others_has_only_what_is_listed(make_dicom):
    scan, files = make_dicom()
    room = cases.room(scan, marks=cases.every_shape("scan"), files=files)
    (source,) = dicom_source.sources(room)
    told = {element.keyword for element in source.header if element.value}
    stand_ins = {"StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "FrameOfReferenceUID"}
    assert told - stand_ins <= set(dicom_source._TOLD)
    assert source.header.FrameOfReferenceUID.startswith("2.25.")
    (whole,) = dicom_source.sources(msgspec.structs.replace(room, may_identify=True))
    assert whole.header.PatientID == dicoms.IDENTITIES["PatientID"]


def test_enhanced_series_keep_where_their_frames_lie_and_no_more(make_dicom):
    dataset = dicoms.gray(np.zeros((2, 120, 80), np.uint8))
    frames = []
    for z in (1.0, 2.0):
        position, content, frame = Dataset(), Dataset(), Dataset()
        position.ImagePositionPatient = [0, 0, z]
        position.ImageComments = "Zweistein"
        content.FrameAcquisitionDateTime = "20230517"
        frame.PlanePositionSequence = Sequence([position])
        frame.FrameContentSequence = Sequence([content])
        frames.append(frame)
    dataset.PerFrameFunctionalGroupsSequence = Sequence(frames)
    series, files = make_dicom("enhanced", dataset, 2)
    marks = (cases.mark("m", cases.SHAPES["point"], "enhanced", frame=1),)
    (source,) = dicom_source.sources(cases.room(series, marks=marks, files=files))
    groups = source.header.PerFrameFunctionalGroupsSequence
    assert [g.PlanePositionSequence[0].ImagePositionPatient[2] for g in groups] == [1, 2]
    assert "Zweistein" not in repr(source.header) and "20230517" not in repr(source.header)


def test_each_marked_still_of_a_video_is_an_image_of_its_own(tmp_path):
    film = cases.video()
    Image.new("RGB", (80, 120)).save(tmp_path / "3", "JPEG")
    files = {"film": Files(frames={3: str(tmp_path / "3"), 0: str(tmp_path / "gone")})}
    point = cases.SHAPES["point"]
    marks = (cases.mark("a", point, "film", frame=3), cases.mark("b", point, "film", frame=0))
    (source,) = dicom_source.sources(cases.room(film, marks=marks, files=files))
    assert source.captured and source.frames == range(3, 4) and source.name == "film-3"
    assert source.header.LossyImageCompression == "01"


def test_what_is_not_marked_or_not_here_is_no_source(turned_photo):
    room = cases.room(cases.photo(), files={"photo": turned_photo})
    assert list(dicom_source.sources(room)) == []
    room = cases.room(cases.photo(), marks=cases.every_shape())
    assert list(dicom_source.sources(room)) == []


def test_pictures_beyond_the_limit_are_left_out(turned_photo):
    huge = cases.photo(width=20_000, height=20_000)
    marks = (cases.mark("m", cases.SHAPES["point"]),)
    room = cases.room(huge, marks=marks, files={"photo": turned_photo})
    assert list(dicom_source.sources(room)) == []


def test_a_name_has_one_uid():
    room = cases.room()
    assert dicom_source.uid(room, "a") == dicom_source.uid(room, "a")
    assert dicom_source.uid(room, "a") != dicom_source.uid(room, "b")
    assert dicom_source.uid(room, "a").is_valid


def header_of(make_dicom, **tags):
    dataset = dicoms.gray(np.zeros((120, 80), np.uint8), **tags)
    scan, files = make_dicom(dataset=dataset)
    marks = (cases.mark("m", cases.SHAPES["point"], "scan"),)
    room = cases.room(scan, marks=marks, files=files, may_identify=True)
    return [source.header for source in dicom_source.sources(room)]


def test_a_number_of_frames_stands_only_where_its_class_has_one(make_dicom):
    """A reference must not name a frame of a CT, and must name one of a dose, also of the first."""
    (header,) = header_of(make_dicom, NumberOfFrames=1)
    assert "NumberOfFrames" not in header
    (header,) = header_of(make_dicom, SOPClassUID=RTDoseStorage)
    assert header.NumberOfFrames == 1


@pytest.mark.filterwarnings("ignore:Invalid value for VR DA:UserWarning")
def test_a_date_that_is_none_is_left_empty(make_dicom):
    (header,) = header_of(make_dicom, StudyDate="1997.04.24", StudyTime="141500.25")
    assert (header.StudyDate, header.StudyTime) == ("", "141500.25")


def test_a_class_that_is_no_image_of_the_standard_is_no_source(make_dicom):
    assert header_of(make_dicom, SOPClassUID="1.2.3.4") == []
    assert header_of(make_dicom, SOPClassUID=ComprehensiveSRStorage) == []
