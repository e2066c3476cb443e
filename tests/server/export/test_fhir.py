"""FHIR, read back by the models of R4B."""

import json
import xml.etree.ElementTree as ET

import pytest
from fhir.resources.R4B.bundle import Bundle
from msgspec.structs import replace

from protocol.shapes import Actor, Target
from server.export import fhir
from tests.support import cases


def full():
    """A room with something of everything."""
    sheet = cases.photo("sheet", rows=(cases.lab_row(),), name="Blutbild & <x>.png")
    marks = (
        *cases.every_shape(),
        cases.mark("its", cases.SHAPES["rectangle"], "sheet", by=cases.MODEL, label="Sodium 128"),
        cases.mark("deep", cases.SHAPES["point"], "series", frame=27, severity="critical"),
    )
    comments = (cases.comment("hello"), cases.comment("see", Target(asset="photo"), "c2"))
    return cases.room(
        cases.photo(),
        sheet,
        cases.series(),
        cases.video(),
        marks=marks,
        comments=comments,
        turns=(replace(cases.answered(), assets=("sheet",)),),
    )


def resources(case, kind):
    bundle = Bundle.model_validate_json(fhir.write(case))
    return [entry.resource for entry in bundle.entry if entry.resource.get_resource_type() == kind]


def is_labelled(observation):
    if observation.meta is None:
        return False
    return [tag.code for tag in observation.meta.tag] == ["unreviewed"] and [
        label.code for label in observation.meta.security
    ] == ["AIAST"]


def test_the_bundle_is_valid_and_every_reference_leads_somewhere():
    written = fhir.write(full())
    Bundle.model_validate_json(written)
    data = json.loads(written)
    names = [entry["fullUrl"] for entry in data["entry"]]
    assert len(names) == len(set(names))
    references = []

    def walk(value):
        if isinstance(value, dict):
            references.extend([value["reference"]] if "reference" in value else [])
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(data["entry"])
    assert len(references) > 10 and set(references) <= set(names)


def test_a_lab_value_has_its_number_unit_range_and_flag():
    (sodium,) = [o for o in resources(full(), "Observation") if o.code.text == "Sodium"]
    assert (float(sodium.valueQuantity.value), sodium.valueQuantity.unit) == (128, "mmol/L")
    (limits,) = sodium.referenceRange
    assert (float(limits.low.value), float(limits.high.value), limits.text) == (
        135,
        145,
        "135-145",
    )
    assert sodium.interpretation[0].coding[0].code == "L"
    assert is_labelled(sodium), "a machine read it"


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"value": "<0.5", "number": 0.5}, {"comparator": "<", "value": 0.5, "unit": "mmol/L"}),
        ({"value": "≥ 9", "number": 9.0}, {"comparator": ">=", "value": 9.0, "unit": "mmol/L"}),
        ({"unit": ""}, {"value": 128.0}),
    ],
)
def test_a_comparator_stays_one(row, wanted):
    sheet = cases.photo(rows=(cases.lab_row(**row),))
    data = json.loads(fhir.write(cases.room(sheet)))
    Bundle.model_validate(data)
    (found,) = [e["resource"] for e in data["entry"] if "valueQuantity" in e["resource"]]
    assert found["valueQuantity"] == wanted


def test_words_and_nothing_are_no_numbers():
    rows = (
        cases.lab_row(id="a", value="positive", number=None, unit="", flag="abnormal"),
        cases.lab_row(id="b", value=" ", number=None, range=" ", low=None, high=None),
    )
    words, nothing = resources(cases.room(cases.photo(rows=rows)), "Observation")
    assert words.valueString == "positive" and words.interpretation[0].coding[0].code == "A"
    assert nothing.dataAbsentReason is not None and nothing.referenceRange is None


def test_what_the_model_made_is_labelled_and_what_a_person_made_is_theirs():
    found = resources(full(), "Observation")
    by_model = [o for o in found if is_labelled(o)]
    assert len(by_model) == 3, "a row, a mark, an answer"
    for each in by_model:
        assert each.performer is None and each.device is not None
        assert "not reviewed" in each.note[0].text
    for each in found:
        assert each.status == "preliminary"
        assert is_labelled(each) or len(each.performer) == 1
    (mei,) = resources(full(), "Practitioner")
    assert mei.name[0].text == "Mei <Li>"


def test_shapes_and_frames_are_told():
    found = resources(full(), "Observation")
    (deep,) = [o for o in found if o.interpretation and o.interpretation[0].text == "critical"]
    drawing, frame = deep.component
    assert frame.valueInteger == 27
    (circle,) = ET.fromstring(drawing.valueString)
    point = cases.SHAPES["point"]
    assert float(circle.get("cx")) == pytest.approx(point.x, abs=0.01)
    assert float(circle.get("cy")) == pytest.approx(point.y, abs=0.01)


def test_empty_words_make_no_empty_elements():
    nobody = Actor(id="p-x", name="", department=" ")
    case = cases.room(
        cases.photo(name="", media_type=""),
        marks=(cases.mark("m", cases.SHAPES["point"], by=nobody, label=" "),),
        comments=(cases.comment(" "),),
        turns=(cases.answered(""), replace(cases.answered("x"), question="", turn="t2")),
    )
    mark, said, answer = resources(case, "Observation")
    assert mark.valueString is None and said.valueString is None and answer.valueString == "x"


def test_the_narrative_is_escaped_and_the_same_room_gives_the_same_names():
    case = full()
    assert fhir.write(case) == fhir.write(case)
    (report,) = resources(case, "DiagnosticReport")
    assert report.status == "preliminary" and "unreviewed" in report.text.div
    ET.fromstring(report.text.div)
