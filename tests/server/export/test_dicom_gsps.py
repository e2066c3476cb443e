"""Presentation states: where graphics lie, on which layer and frame, and how gray is shown."""

import numpy as np
import pytest

from protocol.shapes import Rectangle
from server.export import dicom_sr
from tests.support import cases
from tests.support.dicom_checks import unpacked


def state(asset, files, marks):
    objects = unpacked(dicom_sr.write(cases.room(asset, marks=marks, files=files)))
    return objects[f"gsps-{asset.asset}"]


def points(annotation):
    return np.array(annotation.GraphicObjectSequence[0].GraphicData).reshape(-1, 2)


def test_graphics_are_image_relative_pixels_where_the_room_has_them(make_dicom):
    scan, files = make_dicom()
    gsps = state(scan, files, cases.every_shape("scan"))
    found = {
        each.TextObjectSequence[0].UnformattedTextValue: each
        for each in gsps.GraphicAnnotationSequence
    }
    box = cases.SHAPES["rectangle"]
    rectangle = found["a rectangle"]
    assert rectangle.GraphicObjectSequence[0].GraphicAnnotationUnits == "PIXEL"
    assert np.allclose(points(rectangle)[0], (box.x, box.y), atol=0.01)
    assert np.allclose(points(rectangle)[2], (box.x + box.width, box.y + box.height), atol=0.01)
    ellipse = found["a ellipse"].GraphicObjectSequence[0]
    assert (ellipse.GraphicType, ellipse.NumberOfGraphicPoints) == ("ELLIPSE", 4)
    assert found["a point"].GraphicObjectSequence[0].GraphicType == "POINT"


@pytest.mark.parametrize(("which", "shape"), [("negative", "INVERSE"), ("make_dicom", "IDENTITY")])
def test_a_negative_stays_one(request, which, shape):
    """A state overrides MONOCHROME1, so that it has to say INVERSE itself."""
    made = request.getfixturevalue(which)
    asset, files = made if isinstance(made, tuple) else made()
    gsps = state(asset, files, (cases.mark("m", cases.SHAPES["point"], asset.asset),))
    assert gsps.PresentationLUTShape == shape


def test_the_model_has_a_layer_of_its_own_that_says_unreviewed(film_of_30):
    film, files = film_of_30
    shape = cases.SHAPES["rectangle"]
    marks = (
        cases.mark("mine", shape, "film30", frame=27, label="here"),
        cases.mark("its", shape, "film30", frame=3, label="there", by=cases.MODEL),
    )
    mine, its = state(film, files, marks).GraphicAnnotationSequence
    assert (mine.GraphicLayer, its.GraphicLayer) == ("PEOPLE", "UNREVIEWED")
    assert its.TextObjectSequence[0].UnformattedTextValue == "[unreviewed] there"
    assert mine.ReferencedImageSequence[0].ReferencedFrameNumber == 28


def test_what_hangs_over_the_edge_is_drawn_to_the_edge(make_dicom):
    scan, files = make_dicom()
    over = Rectangle(x=-5, y=100, width=500, height=50)
    gsps = state(scan, files, (cases.mark("m", over, "scan"),))
    found = points(gsps.GraphicAnnotationSequence[0])
    assert found.min(axis=0).tolist() == [0, 100] and found.max(axis=0).tolist() == [80, 120]


def test_a_photo_has_a_colour_state(turned_photo):
    marks = (cases.mark("m", cases.SHAPES["point"]),)
    gsps = state(cases.photo(), {"photo": turned_photo}, marks)
    assert gsps.SOPClassUID.name == "Color Softcopy Presentation State Storage"
