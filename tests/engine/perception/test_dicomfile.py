"""Which DICOM files are decoded, and that their samples are those of pydicom's own pipeline."""

import sys
import warnings

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_color_lut, apply_rescale
from pydicom.sequence import Sequence
from pydicom.uid import (
    MPEG2MPML,
    UID,
    ExplicitVRBigEndian,
    JPEG2000Lossless,
    JPEGLSLossless,
    RLELossless,
)

from engine.api import EngineCode, EngineError
from engine.perception.dicomfile import read_dicom
from engine.perception.voi import Window
from tests.support.dicoms import gray, rgb, saved, shipped, table

SYNTAXES = (
    "MR_small MR_small_implicit MR_small_bigendian MR_small_expb MR_small_RLE MR_small_padded "
    "MR_small_jp2klossless MR_small_jpeg_ls_lossless"
).split()
COLOURS = (
    "examples_ybr_color examples_rgb_color examples_jpeg2k SC_rgb_jpeg_gdcm SC_rgb_jpeg_dcmtk "
    "SC_ybr_full_422_uncompressed SC_rgb_rle_2frame SC_rgb_small_odd SC_rgb_small_odd_big_endian "
    "ExplVR_BigEnd SC_rgb_jls_lossy_sample SC_rgb_gdcm_KY GDCMJ2K_TextGBR"
).split()


def read(path, max_pixels=10**8, max_series_pixels=10**9):
    return read_dicom(str(path), max_pixels=max_pixels, max_series_pixels=max_series_pixels)


def frames_of(path):
    return list(read(path).frames())


def failure(path, **limits):
    with pytest.raises(EngineError) as failed:
        list(read(path, **limits).frames())
    return failed.value


def values_of(frame):
    return frame.samples * frame.gray.slope + frame.gray.intercept


# -- gray ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["CT_small", *SYNTAXES, "693_J2KI", "examples_overlay", "JPEG2000"]
)
def test_gray_samples_are_those_of_pydicom(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MR_small_padded has more bytes than pixels
        dataset = dcmread(shipped(f"{name}.dcm"))
        expected = apply_rescale(dataset.pixel_array, dataset)
    (frame,) = frames_of(shipped(f"{name}.dcm"))
    assert (values_of(frame) == expected).all()
    assert frame.samples.dtype in (np.int16, np.uint16)


def test_all_syntaxes_of_one_picture_give_the_same_samples():
    plain, *others = (frames_of(shipped(f"{name}.dcm"))[0] for name in SYNTAXES)
    for other in others:
        assert (other.samples == plain.samples).all() and other.gray == plain.gray


def test_every_decoder_that_is_installed_for_this_is_used():
    frames_of(shipped("MR_small_jp2klossless.dcm"))
    frames_of(shipped("MR_small_jpeg_ls_lossless.dcm"))
    frames_of(shipped("SC_rgb_jpeg_gdcm.dcm"))
    assert {"openjpeg", "jpeg_ls", "gdcm"} <= set(sys.modules)


@pytest.mark.parametrize("syntax", [JPEGLSLossless, JPEG2000Lossless, RLELossless])
@pytest.mark.parametrize("stored", [12, 16])
def test_w79_signed_samples_of_fewer_bits_equal_their_uncompressed_twin(syntax, stored, tmp_path):
    """Elsewhere they came out shifted by 32,768, or as garbage."""
    least = -(1 << (stored - 1))
    samples = np.linspace(least, -least - 1, 64 * 48).astype(np.int16).reshape(48, 64)
    twin = gray(samples, stored=stored)
    (plain,) = frames_of(saved(twin, tmp_path / "plain.dcm"))
    twin.compress(syntax, samples)
    (packed,) = frames_of(saved(twin, tmp_path / "packed.dcm"))
    assert (plain.samples == samples).all() and (packed.samples == samples).all()


def test_w79_a_sign_that_the_header_tells_otherwise_is_mended():
    dataset = dcmread(shipped("J2K_pixelrep_mismatch.dcm"))
    (frame,) = frames_of(shipped("J2K_pixelrep_mismatch.dcm"))
    assert (values_of(frame) == apply_rescale(dataset.pixel_array, dataset)).all()
    assert frame.samples.min() == -2000


def test_one_bit_segmentations_are_black_and_white():
    (frame,) = frames_of(shipped("liver_1frame.dcm"))
    assert (frame.samples == dcmread(shipped("liver_1frame.dcm")).pixel_array).all()
    assert frame.gray.windows == (Window(center=1.0, width=2.0, name="Full range"),)


def test_samples_deeper_than_16_bits_keep_their_values_to_a_step():
    dataset = dcmread(shipped("rtdose.dcm"))
    frames = frames_of(shipped("rtdose.dcm"))
    assert len(frames) == 15
    for frame, array in zip(frames, dataset.pixel_array, strict=True):
        step = float(np.ptp(array)) / 65_535
        assert np.abs(values_of(frame) - array).max() <= step / 2 + 1e-6
        assert frame.gray.windows == frames[0].gray.windows


def test_a_modality_table_is_applied_before_all_else(tmp_path):
    samples = np.array([[0, 1], [2, 3]], np.uint16)
    made = gray(samples, ModalityLUTSequence=table(1, 16, [100, 200, 4000]))
    (frame,) = frames_of(saved(made, tmp_path / "x.dcm"))
    assert values_of(frame).tolist() == [[100, 100], [200, 4000]]


# -- windows -------------------------------------------------------------------------------------


def test_w77_a_table_and_all_windows_are_kept_the_table_first(tmp_path):
    entries = [0, 500, 1023]
    made = gray(
        np.zeros((2, 2), np.int16),
        WindowCenter=[40, -600],
        WindowWidth=[400, 1500],
        VOILUTSequence=table(-1, 10, entries),
    )
    (frame,) = frames_of(saved(made, tmp_path / "x.dcm"))
    assert frame.gray.lut is not None and frame.gray.lut.entries == tuple(entries)
    assert (frame.gray.lut.first, frame.gray.lut.bits) == (-1, 10)
    assert [(w.center, w.width, w.name) for w in frame.gray.windows] == [
        (40, 400, "Window 1"),
        (-600, 1500, "Window 2"),
    ]


def test_w75_every_frame_of_a_monochrome1_series_is_inverted(tmp_path):
    made = gray(
        np.arange(48, dtype=np.uint8).reshape(3, 4, 4), PhotometricInterpretation="MONOCHROME1"
    )
    frames = frames_of(saved(made, tmp_path / "x.dcm"))
    assert [frame.gray.invert for frame in frames] == [True] * 3


def test_frames_with_values_of_their_own_keep_them(tmp_path):
    """Enhanced MR scales each frame differently; with the first one's numbers the rest is wrong."""
    made = gray(np.full((2, 4, 4), 100, np.uint16))
    groups = []
    for slope, center in ((2.0, 150), (0.5, 45)):
        values, voi, group = Dataset(), Dataset(), Dataset()
        values.RescaleSlope, values.RescaleIntercept, values.RescaleType = slope, -10, "US"
        voi.WindowCenter, voi.WindowWidth = center, 80
        group.PixelValueTransformationSequence = Sequence([values])
        group.FrameVOILUTSequence = Sequence([voi])
        groups.append(group)
    made.PerFrameFunctionalGroupsSequence = Sequence(groups)
    path = saved(made, tmp_path / "x.dcm")
    first, second = frames_of(path)
    assert (values_of(first)[0, 0], values_of(second)[0, 0]) == (190, 40)
    assert (first.gray.windows[0].center, second.gray.windows[0].center) == (150, 45)
    assert read(path).imaging().window_center == 150


def test_padding_does_not_widen_the_range(tmp_path):
    samples = np.array([[-2000, 0], [500, 999]], np.int16)
    made = gray(samples, PixelPaddingValue=-2000)
    (frame,) = frames_of(saved(made, tmp_path / "x.dcm"))
    assert frame.gray.windows == (Window(center=500.0, width=1000.0, name="Full range"),)


def test_a_window_without_width_is_passed_over(tmp_path):
    made = gray(np.array([[0, 9]], np.uint16), WindowCenter=[5, 4], WindowWidth=[0, 8])
    (frame,) = frames_of(saved(made, tmp_path / "x.dcm"))
    assert [window.width for window in frame.gray.windows] == [8]


# -- colour --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COLOURS)
def test_colours_are_those_of_pydicom(name):
    expected = dcmread(shipped(f"{name}.dcm")).pixel_array
    found = read(shipped(f"{name}.dcm"))
    frames = list(found.frames())
    expected = expected if expected.ndim == 4 else expected[None]
    assert found.is_color and found.count == len(frames) == len(expected)
    for frame, picture in zip(frames, expected, strict=True):
        assert (frame.samples == picture).all() and frame.gray is None


def test_palettes_become_the_colours_that_pydicom_looks_up():
    dataset = dcmread(shipped("examples_palette.dcm"))
    (frame,) = frames_of(shipped("examples_palette.dcm"))
    assert (frame.samples == apply_color_lut(dataset.pixel_array, dataset) >> 8).all()


def test_deep_colours_keep_their_upper_bits():
    dataset = dcmread(shipped("SC_rgb_rle_16bit.dcm"))
    (frame,) = frames_of(shipped("SC_rgb_rle_16bit.dcm"))
    assert (frame.samples == dataset.pixel_array >> 8).all()


@pytest.mark.parametrize("vr", ["OB", "OW"])
def test_w81_big_endian_colours_are_not_swapped(vr, tmp_path):
    samples = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    made = rgb(samples)
    made.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
    swapped = np.frombuffer(made.PixelData, "<u2").astype(">u2").tobytes()
    made.add_new("PixelData", vr, swapped if vr == "OW" else made.PixelData)
    (frame,) = frames_of(saved(made, tmp_path / "x.dcm"))
    assert (frame.samples == samples).all()


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, code, words",
    [
        ("waveform_ecg.dcm", EngineCode.MEDIA_UNSUPPORTED, "12-lead ECG Waveform"),
        ("test-SR.dcm", EngineCode.MEDIA_UNSUPPORTED, "Comprehensive SR"),
        ("dicomdirtests/DICOMDIR", EngineCode.MEDIA_UNSUPPORTED, "Media Storage Directory"),
        ("JPGExtended.dcm", EngineCode.MEDIA_UNSUPPORTED, "12 bits"),
        ("MR_truncated.dcm", EngineCode.MEDIA_TRUNCATED, "end"),
        ("badVR.dcm", EngineCode.MEDIA_CORRUPT, "header"),
    ],
)
def test_what_cannot_be_shown_is_called_by_its_code_and_name(name, code, words):
    failed = failure(shipped(name))
    assert failed.code is code and words in failed.message


@pytest.mark.parametrize("name", ["MR_small_jp2klossless", "MR_small_RLE", "examples_ybr_color"])
def test_compressed_pixels_that_are_cut_short_are_truncated(name, tmp_path):
    whole = shipped(f"{name}.dcm").read_bytes()
    cut = tmp_path / "cut.dcm"
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    assert failure(cut).code is EngineCode.MEDIA_TRUNCATED


def test_limits_hold_before_anything_is_decoded():
    name = shipped("examples_ybr_color.dcm")
    for limits in ({"max_pixels": 76_799}, {"max_series_pixels": 30 * 76_800 - 1}):
        failed = failure(name, **limits)
        assert failed.code is EngineCode.MEDIA_TOO_MANY_PIXELS
        assert "30 frames of 320 x 240" in failed.message
    assert read(name, max_pixels=76_800, max_series_pixels=30 * 76_800).count == 30


def test_more_frames_than_files_may_be_are_refused(tmp_path):
    made = gray(np.zeros((1, 1), np.uint8), NumberOfFrames=10_001)
    assert failure(saved(made, tmp_path / "x.dcm")).code is EngineCode.MEDIA_TOO_MANY_PIXELS


def test_a_compression_that_is_not_decoded_is_named(tmp_path):
    dataset = dcmread(shipped("MR_small_RLE.dcm"))
    dataset.file_meta.TransferSyntaxUID = UID(MPEG2MPML)
    failed = failure(saved(dataset, tmp_path / "y.dcm"))
    assert failed.code is EngineCode.MEDIA_UNSUPPORTED and "MPEG2" in failed.message


@pytest.mark.parametrize("tags", [{"Rows": 0}, {"Columns": None}, {"NumberOfFrames": -1}])
def test_a_picture_without_a_size_is_damaged(tags, tmp_path):
    made = gray(np.zeros((4, 4), np.uint8), **tags)
    assert failure(saved(made, tmp_path / "x.dcm")).code is EngineCode.MEDIA_CORRUPT


def test_a_file_without_its_meta_header_is_decoded(tmp_path):
    dataset = dcmread(shipped("CT_small.dcm"))
    bare = tmp_path / "bare.dcm"
    del dataset.file_meta
    dataset.preamble = None
    dataset.save_as(bare, implicit_vr=False, little_endian=True, enforce_file_format=False)
    assert bare.read_bytes()[:2] == b"\x08\x00"
    (frame,) = frames_of(bare)
    (whole,) = frames_of(shipped("CT_small.dcm"))
    assert (frame.samples == whole.samples).all()


def test_complaints_name_no_value_of_the_file(tmp_path, capfd, caplog):
    made = gray(np.zeros((4, 4), np.uint8))
    made.add_new("PatientAge", "AS", "Zweistein is 86")
    frames_of(saved(made, tmp_path / "x.dcm"))
    read(tmp_path / "x.dcm").imaging()
    printed = capfd.readouterr()
    assert "Zweistein" not in printed.out + printed.err + caplog.text
