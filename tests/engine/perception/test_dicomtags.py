"""What of a DICOM file may be told, and whose name it carries, in whatever writing."""

import msgspec
import numpy as np
import pytest
from dicomanonymizer.dicom_anonymization_databases import dicomfields_2024b
from pydicom import dcmread
from pydicom.datadict import tag_for_keyword
from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset
from pydicom.tag import Tag

from engine.perception.dicomtags import TOLD, PersonNames, describe, kind_of, patient_names
from tests.support.dicoms import IDENTITIES, gray, shipped

PICTURE = np.zeros((4, 4), np.uint16)


def charset_file(name):
    return dcmread(shipped(name).parents[1] / "charset_files" / f"{name}.dcm")


def named(raw, *charsets):
    dataset = Dataset()
    dataset.SpecificCharacterSet = list(charsets) if len(charsets) > 1 else (charsets or ("",))[0]
    dataset.add_new("PatientName", "PN", "x")
    element = RawDataElement(Tag("PatientName"), "PN", len(raw), raw, 0, False, True)
    dataset._dict[Tag("PatientName")] = element
    return patient_names(dataset)


def test_no_tag_that_is_told_is_in_the_table_of_what_identifies():
    """PS3.15 table E.1-1: a tag that is there with any action says who, where or when."""
    table = {
        tuple(tag[:2])
        for name, tags in vars(dicomfields_2024b).items()
        if name.isupper() and isinstance(tags, list)
        for tag in tags
        if len(tag) == 2
    }
    assert (0x0010, 0x0010) in table and len(table) > 300
    told = {(Tag(tag_for_keyword(word)).group, Tag(tag_for_keyword(word)).element) for word in TOLD}
    assert not told & table


def test_numbers_and_defined_terms_are_told():
    dataset = gray(
        PICTURE,
        Modality="MG",
        BodyPartExamined="breast",
        ViewPosition="MLO",
        ImageLaterality="L",
        PixelSpacing=[0.07, 0.08],
    )
    told = describe(dataset, [])
    assert (told.modality, told.body_part, told.view) == ("MG", "BREAST", "MLO")
    assert (told.laterality, told.pixel_spacing) == ("left", (0.07, 0.08))


@pytest.mark.parametrize(
    "tags",
    [
        {"BodyPartExamined": "ZWEISTEIN A"},
        {"ViewPosition": "ALBERTINE"},
        {"Modality": "DR GRAUHUBER"},
        {"ImageLaterality": "MRN-77120934"},
    ],
)
def test_a_name_typed_into_a_harmless_field_is_withheld(tags):
    told = msgspec.json.encode(describe(gray(PICTURE, **tags), [])).decode()
    for value in (*tags.values(), *IDENTITIES.values()):
        assert value.casefold() not in told.casefold()


@pytest.mark.parametrize(
    "orientation, plane",
    [
        ([1, 0, 0, 0, 1, 0], "axial"),
        ([0, 1, 0, 0, 0, -1], "sagittal"),
        ([1, 0, 0, 0, 0, -1], "coronal"),
        ([1, 0, 0, 0, 0.8, 0.6], "oblique axial"),
    ],
)
def test_the_plane_of_a_slice_is_told(orientation, plane):
    assert describe(gray(PICTURE, ImageOrientationPatient=orientation), []).view == plane


@pytest.mark.parametrize(
    "values", [{"PixelSpacing": [0, 1]}, {"PixelSpacing": "1"}, {"ImageOrientationPatient": [1, 2]}]
)
def test_numbers_without_a_meaning_are_left_out(values):
    told = describe(gray(PICTURE, **values), [])
    assert told.pixel_spacing is None and told.view == ""


def test_an_object_without_a_picture_is_called_by_its_class():
    assert kind_of(dcmread(shipped("waveform_ecg.dcm"))) == "12-lead ECG Waveform Storage"
    assert kind_of(dcmread(shipped("test-SR.dcm"))) == "Comprehensive SR Storage"
    private = gray(PICTURE, SOPClassUID="1.2.3.4.99", Modality="CT")
    assert kind_of(private) == "CT object"


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, expected",
    [
        ("chrX1", PersonNames("Wang^XiaoDong", "王^小東", "")),
        ("chrX2", PersonNames("Wang^XiaoDong", "王^小东", "")),
        ("chrH31", PersonNames("Yamada^Tarou", "山田^太郎", "やまだ^たろう")),
        ("chrH32", PersonNames("ﾔﾏﾀﾞ^ﾀﾛｳ", "山田^太郎", "やまだ^たろう")),
        ("chrI2", PersonNames("Hong^Gildong", "洪^吉洞", "홍^길동")),
        ("chrGerm", PersonNames("Äneas^Rüdiger", "", "")),
        ("chrRuss", PersonNames("Люкceмбypг", "", "")),
        ("chrArab", PersonNames("قباني^لنزار", "", "")),
        ("chrFren", PersonNames("Buc^Jérôme", "", "")),
        ("chrGreek", PersonNames("Διονυσιος", "", "")),
        ("chrHbrw", PersonNames("שרון^דבורה", "", "")),
        ("chrKoreanMulti", PersonNames("김희중", "", "")),
    ],
)
def test_w86_a_name_is_read_by_its_character_set_in_all_its_groups(name, expected):
    assert patient_names(charset_file(name)) == expected


def test_w86_gb18030_with_four_bytes_a_character():
    raw = "Li^Hua=李^㐂=Lǐ^Huá".encode("gb18030")
    assert named(raw, "GB18030") == PersonNames("Li^Hua", "李^㐂", "Lǐ^Huá")


def test_w86_a_kanji_that_has_the_byte_of_an_equals_sign_does_not_split_the_name():
    """0x3D50 is 出; split at 0x3D the name fell into pieces."""
    raw = b"Izumi=" + "出^出".encode("iso2022_jp") + b"=" + "いずみ".encode("iso2022_jp")
    assert named(raw, "", "ISO 2022 IR 87").ideographic == "出^出"


@pytest.mark.parametrize(
    "raw, charsets, expected",
    [
        ("张^伟".encode("gbk"), ("ISO_IR 100",), "张^伟"),
        ("张^伟".encode(), (), "张^伟"),
        ("Müller^Jürgen".encode("latin-1"), ("ISO_IR 100",), "Müller^Jürgen"),
        ("Müller^Jürgen".encode(), ("ISO_IR 100",), "Müller^Jürgen"),
        ("Åse^Bø".encode("latin-1"), ("ISO_IR 100",), "Åse^Bø"),
        ("Каренина".encode("iso8859_5"), ("ISO_IR 144",), "Каренина"),
    ],
)
def test_w86_a_file_that_lies_about_its_letters_is_seen_through(raw, charsets, expected):
    assert named(raw, *charsets).alphabetic == expected


def test_a_file_without_a_name_has_none():
    assert patient_names(Dataset()) == PersonNames("", "", "")
