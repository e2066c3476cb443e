"""DICOM structured reports, read back by highdicom, dciodvfy and dsrdump."""

import highdicom as hd
import numpy as np
import pydicom
import pytest

from protocol.shapes import Ellipse, PointMark, Polyline
from server.export import dicom_sr
from server.export.case import Files, NotExportable
from server.export.geometry import corners, ellipse_axes
from tests.support import cases, dicoms
from tests.support.dicom_checks import faults, report_text, unpacked


def written(*assets, marks, **room):
    return unpacked(dicom_sr.write(cases.room(*assets, marks=marks, **room)))


def regions(report):
    """Each group of a report: its region and its content items by their meaning."""
    read = hd.sr.ComprehensiveSR.from_dataset(report)
    yield from read.content.get_planar_roi_measurement_groups()


def meanings(group):
    told = {}
    for item in group[0].ContentSequence:
        name = item.ConceptNameCodeSequence[0].CodeMeaning
        if "ConceptCodeSequence" in item:
            told[name] = item.ConceptCodeSequence[0].CodeValue
        else:
            told[name] = item.get("TextValue") or item.get("PersonName") or item.get("UID")
    return told


def expected_points(shape):
    if isinstance(shape, Ellipse):
        return [end for axis in ellipse_axes(shape) for end in axis]
    points = corners(shape)
    return points if isinstance(shape, PointMark | Polyline) else [*points, points[0]]


def test_every_shape_comes_back_to_a_hundredth_of_a_pixel(make_dicom):
    scan, files = make_dicom()
    objects = written(scan, marks=cases.every_shape("scan"), files=files)
    found = list(regions(objects["sr-1"]))
    assert len(found) == len(cases.SHAPES)
    for group, (name, shape) in zip(found, cases.SHAPES.items(), strict=True):
        points = group.roi.value
        assert np.allclose(points, expected_points(shape), atol=0.01), name
        assert meanings(group)["Comment"] == f"a {name}"


def test_every_object_is_valid_to_outside_programs(make_dicom, film_of_30, negative, tmp_path):
    scan, files = make_dicom()
    film, film_files = film_of_30
    gray, gray_files = negative
    marks = (
        *cases.every_shape("scan"),
        *cases.every_shape("film30", frame=27, by=cases.MODEL),
        cases.mark("n", cases.SHAPES["ellipse"], "negative", label="糖化血红蛋白 ↑"),
    )
    for may_identify in (False, True):
        objects = written(
            scan,
            film,
            gray,
            marks=marks,
            files=files | film_files | gray_files,
            may_identify=may_identify,
        )
        assert {name.partition("-")[0] for name in objects} == {"sr", "gsps", "seg"}
        for name, each in objects.items():
            assert faults(each, tmp_path) == [], name
            if name.startswith("sr-"):
                assert "Imaging Measurement Report" in report_text(each, tmp_path)
        text = "".join(
            report_text(each, tmp_path) for name, each in objects.items() if name[:2] == "sr"
        )
        assert "糖化血红蛋白 ↑" in text


@pytest.mark.parametrize(
    "name",
    [
        *("CT_small", "MR_small", "examples_ybr_color", "examples_palette", "rtdose_1frame"),
        *("JPGExtended", "ExplVR_BigEnd", "SC_rgb_small_odd", "liver_1frame"),
    ],
)
@pytest.mark.filterwarnings("ignore:Invalid value for VR:UserWarning")
def test_files_of_many_makers_give_valid_objects(name, tmp_path):
    path = dicoms.shipped(f"{name}.dcm")
    header = pydicom.dcmread(path, stop_before_pixels=True)
    frames = int(header.get("NumberOfFrames") or 1)
    scan = cases.series("scan", frames, width=header.Columns, height=header.Rows)
    marks = cases.every_shape("scan", frame=frames - 1)
    files = {"scan": Files(original=str(path))}
    for may_identify in (False, True):
        objects = written(scan, marks=marks, files=files, may_identify=may_identify)
        assert {"sr-1", "gsps-scan"} <= set(objects)
        for key, each in objects.items():
            assert faults(each, tmp_path) == [], key


def test_a_mark_on_frame_27_refers_to_the_28th(film_of_30):
    film, files = film_of_30
    marks = (cases.mark("m", cases.SHAPES["point"], "film30", frame=27),)
    (group,) = regions(written(film, marks=marks, files=files)["sr-1"])
    (image,) = [
        item.ContentSequence[0] for item in group[0].ContentSequence if "ContentSequence" in item
    ]
    assert image.ReferencedSOPSequence[0].ReferencedFrameNumber == 28


def test_a_mark_on_a_frame_that_is_not_there_is_left_out(film_of_30):
    film, files = film_of_30
    marks = (
        cases.mark("in", cases.SHAPES["point"], "film30", frame=29),
        cases.mark("out", cases.SHAPES["point"], "film30", frame=30),
    )
    (group,) = regions(written(film, marks=marks, files=files)["sr-1"])
    assert meanings(group)["Tracking Identifier"] == "in"


def test_what_the_model_made_is_labelled_and_the_report_preliminary(make_dicom):
    scan, files = make_dicom()
    shape = cases.SHAPES["rectangle"]
    marks = (
        cases.mark("mine", shape, "scan", severity="critical"),
        cases.mark("its", shape, "scan", by=cases.MODEL),
    )
    report = written(scan, marks=marks, files=files)["sr-1"]
    assert (report.PreliminaryFlag, report.VerificationFlag) == ("PRELIMINARY", "UNVERIFIED")
    mine, its = (meanings(group) for group in regions(report))
    assert (mine["Review status"], its["Review status"]) == ("made-by-person", "unreviewed")
    assert (mine["Severity"], its["Severity"]) == ("critical", "note")
    assert str(mine["Person Observer Name"]) == "Mei <Li>"
    assert its["Algorithm Name"] == its["Device Observer Name"] == "Consilium"
    assert "Person Observer Name" not in its and "Algorithm Name" not in mine


def test_only_who_may_see_them_gets_identities(make_dicom):
    """Every value of the file that says who, where or when is looked for in all bytes."""
    scan, files = make_dicom()
    marks = cases.every_shape("scan")
    hidden = dicom_sr.write(cases.room(scan, marks=marks, files=files))
    for each in unpacked(hidden).values():
        text = repr(each) + repr(each.file_meta)
        for keyword, value in dicoms.IDENTITIES.items():
            assert value not in text, keyword
    shown = written(scan, marks=marks, files=files, may_identify=True)
    for each in shown.values():
        assert each.PatientName == dicoms.IDENTITIES["PatientName"]
        assert each.StudyInstanceUID == dicoms.IDENTITIES["StudyInstanceUID"]
    evidence = shown["sr-1"].CurrentRequestedProcedureEvidenceSequence[0]
    (referenced,) = evidence.ReferencedSeriesSequence[0].ReferencedSOPSequence
    assert referenced.ReferencedSOPInstanceUID == dicoms.IDENTITIES["SOPInstanceUID"]


def test_a_name_in_another_character_set_stays_that_name(make_dicom):
    samples = np.zeros((120, 80), np.uint8)
    dataset = dicoms.gray(samples, SpecificCharacterSet="GB18030", PatientName="王^小东")
    scan, files = make_dicom(dataset=dataset)
    marks = (cases.mark("m", cases.SHAPES["point"], "scan", label="糖化血红蛋白"),)
    for each in written(scan, marks=marks, files=files, may_identify=True).values():
        assert each.SpecificCharacterSet == "ISO_IR 192" and each.PatientName == "王^小东"


def test_a_file_that_was_uploaded_twice_is_one_image(make_dicom, tmp_path):
    scan, files = make_dicom()
    again = cases.series("again", 1)
    marks = (
        cases.mark("a", cases.SHAPES["point"], "scan"),
        cases.mark("b", cases.SHAPES["point"], "again"),
    )
    files["again"] = files["scan"]
    objects = written(scan, again, marks=marks, files=files, may_identify=True)
    assert len(list(regions(objects["sr-1"]))) == 2
    assert faults(objects["sr-1"], tmp_path) == []


def test_objects_of_one_export_belong_together_and_stay_the_same(make_dicom):
    scan, files = make_dicom()
    marks = cases.every_shape("scan")
    one, two = (written(scan, marks=marks, files=files) for _ in range(2))
    assert len({each.StudyInstanceUID for each in one.values()}) == 1
    assert len({each.SOPInstanceUID for each in one.values()}) == len(one) == 3
    for name in one:
        assert one[name].SOPInstanceUID == two[name].SOPInstanceUID


def test_a_photo_becomes_an_image_of_its_upright_pixels(turned_photo, tmp_path):
    """The file is stored lying; marks are on what people saw, and so is the capture."""
    photo = cases.photo()
    marks = (cases.mark("m", cases.SHAPES["rectangle"]),)
    objects = written(photo, marks=marks, files={"photo": turned_photo})
    image = objects["image-photo"]
    assert (image.Rows, image.Columns) == (120, 80)
    bright = image.pixel_array[..., 0] > 128
    assert bright[20:50, 10:30].mean() > 0.98 and bright.sum() == pytest.approx(600, abs=30)
    (group,) = regions(objects["sr-1"])
    assert np.allclose(group.roi.value[0], (10.25, 20.5), atol=0.01)
    for name, each in objects.items():
        assert faults(each, tmp_path) == [], name


def test_a_person_s_name_cannot_part_itself(make_dicom):
    scan, files = make_dicom()
    odd = pydicom.valuerep.PersonName
    by = cases.MEI.__class__(id="p", name="A^B=C\\D" * 20)
    marks = (cases.mark("m", cases.SHAPES["point"], "scan", by=by, label="a\\b"),)
    (group,) = regions(written(scan, marks=marks, files=files)["sr-1"])
    told = meanings(group)
    assert odd(told["Person Observer Name"]).given_name == ""
    assert told["Comment"] == "a\\b"


@pytest.mark.parametrize("assets", [(), (cases.photo(),)])
def test_a_room_without_a_picture_says_so(assets):
    marks = tuple(cases.mark("m", cases.SHAPES["point"]) for _ in assets)
    with pytest.raises(NotExportable, match="no standing mark"):
        dicom_sr.write(cases.room(*assets, marks=marks))


def test_more_marks_than_can_be_written_in_time_are_refused_at_once(make_dicom):
    scan, files = make_dicom()
    one = cases.mark("m", cases.SHAPES["point"], "scan")
    with pytest.raises(NotExportable, match="5,001 marks are too many"):
        dicom_sr.write(cases.room(scan, marks=(one,) * 5_001, files=files))
