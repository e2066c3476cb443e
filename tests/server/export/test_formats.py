"""The table of formats."""

import json

import pytest

from server.export import formats
from server.export.case import NotExportable
from tests.support import cases


@pytest.mark.parametrize("name", sorted(set(formats.FORMATS) - {formats.NDJSON, "dicom-sr"}))
def test_each_is_written_of_an_empty_room_too(name):
    written = formats.write(name, cases.room())
    assert written.content and written.suffix == formats.FORMATS[name].suffix


def test_a_package_that_is_missing_is_named():
    form = formats.Form("no_such_module", "x/y", "x", "export")
    with pytest.raises(NotExportable, match=r"no_such_module.*consilium\[export\]"):
        formats.writer(form)


def test_what_the_model_made_is_labelled_in_every_format():
    shape = cases.SHAPES["rectangle"]
    by_model = cases.room(
        cases.photo(), marks=(cases.mark("m", shape, by=cases.MODEL, label="shadow"),)
    )
    by_person = cases.room(cases.photo(), marks=(cases.mark("m", shape, label="shadow"),))
    for name in sorted(set(formats.FORMATS) - {formats.NDJSON, "dicom-sr"}):
        marked = formats.write(name, by_model).content.lower().count(b"unreviewed")
        plain = formats.write(name, by_person).content.lower().count(b"unreviewed")
        assert marked > plain, name
    json.loads(formats.write("coco", by_model).content)
