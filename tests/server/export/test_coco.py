"""COCO, read back by pycocotools."""

import json

import msgspec
import numpy as np
import pytest
from pycocotools.coco import COCO

from protocol.shapes import Rectangle, Shape
from server.export import coco
from server.export.geometry import area, bounds
from tests.support import cases

# pycocotools' own code for masks is older than numpy 2's `copy`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture
def read(tmp_path):
    def back(case) -> COCO:
        path = tmp_path / "room.json"
        path.write_bytes(coco.write(case))
        return COCO(path)

    return back


def test_every_shape_comes_back_as_it_was(read):
    data = read(cases.room(cases.photo(), marks=cases.every_shape()))
    found = data.loadAnns(data.getAnnIds())
    for each, (name, shape) in zip(found, cases.SHAPES.items(), strict=True):
        box = bounds(shape)
        assert each["bbox"] == pytest.approx([box.x, box.y, box.width, box.height], abs=0.01)
        assert each["area"] == pytest.approx(area(shape), abs=0.01)
        assert msgspec.convert(each["attributes"]["shape"], Shape) == shape, name
        assert data.loadCats(each["category_id"])[0]["name"] == f"a {name}"


def test_the_mask_lies_where_the_mark_does(read):
    box = Rectangle(x=10, y=20, width=30, height=5)
    data = read(cases.room(cases.photo(), marks=(cases.mark("m", box),)))
    mask = data.annToMask(data.loadAnns([1])[0])
    wanted = np.zeros((120, 80), np.uint8)
    wanted[20:25, 10:40] = 1
    assert np.array_equal(mask, wanted)


def test_masks_of_all_shapes_have_their_areas(read):
    data = read(cases.room(cases.photo(), marks=cases.every_shape()))
    for each in data.loadAnns(data.getAnnIds()):
        pixels = int(data.annToMask(each).sum())
        assert pixels == pytest.approx(each["area"], abs=max(20, each["area"] * 0.06))


def test_the_picture_is_the_upright_one_and_frames_are_pictures_of_their_own(read):
    shape = cases.SHAPES["point"]
    marks = (
        cases.mark("a", shape, "photo"),
        cases.mark("b", shape, "series", frame=27),
        cases.mark("c", shape, "series", frame=27),
        cases.mark("d", shape, "film", frame=3, pts_us=1),
    )
    data = read(cases.room(cases.photo(), cases.series(), cases.video(), marks=marks))
    images = {image["id"]: image for image in data.dataset["images"]}
    on = [images[each["image_id"]] for each in data.dataset["annotations"]]
    assert [image["file_name"] for image in on] == [
        "photo",
        "series-frame-27",
        "series-frame-27",
        "film-frame-3",
    ]
    assert (on[0]["width"], on[0]["height"]) == (80, 120)
    assert on[1]["coco_url"].endswith("/assets/series/frames/27")
    assert len({image["file_name"] for image in images.values()}) == len(images) == 4


def test_what_the_model_made_is_labelled_unreviewed(read):
    shape = cases.SHAPES["rectangle"]
    marks = (cases.mark("mine", shape), cases.mark("its", shape, by=cases.MODEL))
    data = read(cases.room(cases.photo(), marks=marks))
    mine, its = (each["attributes"] for each in data.loadAnns([1, 2]))
    assert (mine["review"], its["review"]) == ("made-by-person", "unreviewed")
    assert "unreviewed" in data.dataset["info"]["description"]


def test_sound_is_no_picture():
    tape = cases.photo("tape", width=0, height=0, levels=())
    marks = (cases.mark("m", cases.SHAPES["point"], "tape"),)
    data = json.loads(coco.write(cases.room(tape, marks=marks)))
    assert data["images"] == data["annotations"] == []
