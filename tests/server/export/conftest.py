"""Rooms whose pictures lie on disk, for formats that read them."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from pydicom.uid import MultiFrameGrayscaleByteSecondaryCaptureImageStorage

from engine.perception.detect import Kind
from engine.perception.picture import Source
from server.export.case import Files
from tests.support import cases, dicoms


@pytest.fixture
def turned_photo(tmp_path):
    """A JPEG of 120 x 80 that says it is to be turned, as perception shows it: 80 x 120.

    In the upright picture the pixels from (10, 20) to (30, 50) are white.
    """
    upright = np.zeros((120, 80, 3), np.uint8)
    upright[20:50, 10:30] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = Image.fromarray(upright).transpose(Image.Transpose.ROTATE_90)
    assert stored.size == (120, 80)
    stored.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    kind = Kind(media_type="image/jpeg", width=80, height=120, orientation=6)
    Source(str(tmp_path / "turned.jpg"), kind).pixels().save(tmp_path / "level-0", "PNG")
    return Files(
        original=str(tmp_path / "turned.jpg"),
        picture=str(tmp_path / "level-0"),
        picture_type="image/png",
    )


def _placed(dataset):
    dataset.FrameOfReferenceUID = "1.2.826.0.1.3680043.8.498.74747474"
    dataset.ImagePositionPatient = [1.0, 2.0, 3.0]
    dataset.ImageOrientationPatient = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    dataset.PixelSpacing = [0.5, 0.5]
    dataset.SliceThickness = 1.0
    return dataset


@pytest.fixture
def make_dicom(tmp_path):
    """Put a DICOM file on disk and return the asset and where it lies."""

    def make(name="scan", dataset=None, frames=1):
        if dataset is None:
            samples = np.arange(120 * 80, dtype=np.uint16).reshape(120, 80)
            dataset = _placed(dicoms.gray(samples))
        else:
            # Every file has a UID of its own; those of the tests have all the same.
            dataset.SOPInstanceUID = f"{dataset.SOPInstanceUID}.{len(name)}"
            dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
        path = tmp_path / f"{name}.dcm"
        dicoms.saved(dataset, path)
        asset = cases.series(name, frames, width=int(dataset.Columns), height=int(dataset.Rows))
        return asset, {name: Files(original=str(path))}

    return make


@pytest.fixture
def film_of_30(make_dicom):
    """A gray series of 30 frames of 80 x 120."""
    dataset = dicoms.gray(np.zeros((30, 120, 80), np.uint8), Modality="OT")
    dataset.SOPClassUID = MultiFrameGrayscaleByteSecondaryCaptureImageStorage
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    return make_dicom("film30", dataset, 30)


@pytest.fixture
def negative(make_dicom):
    """A MONOCHROME1 picture, as old X-ray detectors send them."""
    samples = np.arange(120 * 80, dtype=np.uint16).reshape(120, 80)
    dataset = dicoms.gray(samples, PhotometricInterpretation="MONOCHROME1")
    return make_dicom("negative", dataset)
