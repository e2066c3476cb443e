"""W3C Web Annotations, read back by a JSON-LD processor and an XML parser."""

import json
import xml.etree.ElementTree as ET

import pytest
from pyld import jsonld

from protocol.shapes import Ellipse, Point, PointMark, Polygon, Polyline, Rectangle, Target
from server.export import w3c
from tests.support import cases

OA, AS = "http://www.w3.org/ns/oa#", "http://www.w3.org/ns/activitystreams#"
RDF_VALUE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#value"
DC = "http://purl.org/dc/terms/"
# The terms of http://www.w3.org/ns/anno.jsonld that exports may use, as they are defined there.
CONTEXT = {
    "oa": OA,
    "as": AS,
    "dcterms": DC,
    "dctypes": "http://purl.org/dc/dcmitype/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "schema": "http://schema.org/",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "id": {"@type": "@id", "@id": "@id"},
    "type": {"@type": "@id", "@id": "@type"},
    "Annotation": "oa:Annotation",
    "Dataset": "dctypes:Dataset",
    "Image": "dctypes:StillImage",
    "SpecificResource": "oa:SpecificResource",
    "FragmentSelector": "oa:FragmentSelector",
    "SvgSelector": "oa:SvgSelector",
    "TextualBody": "oa:TextualBody",
    "Person": "foaf:Person",
    "Software": "as:Application",
    "AnnotationCollection": "as:OrderedCollection",
    "AnnotationPage": "as:OrderedCollectionPage",
    "Motivation": "oa:Motivation",
    "describing": "oa:describing",
    "commenting": "oa:commenting",
    "classifying": "oa:classifying",
    "highlighting": "oa:highlighting",
    "tagging": "oa:tagging",
    "body": {"@type": "@id", "@id": "oa:hasBody"},
    "target": {"@type": "@id", "@id": "oa:hasTarget"},
    "source": {"@type": "@id", "@id": "oa:hasSource"},
    "selector": {"@type": "@id", "@id": "oa:hasSelector"},
    "motivation": {"@type": "@vocab", "@id": "oa:motivatedBy"},
    "purpose": {"@type": "@vocab", "@id": "oa:hasPurpose"},
    "value": {"@id": "http://www.w3.org/1999/02/22-rdf-syntax-ns#value"},
    "format": {"@id": "http://purl.org/dc/elements/1.1/format"},
    "name": {"@id": "foaf:name"},
    "creator": {"@type": "@id", "@id": "dcterms:creator"},
    "created": {"@id": "dcterms:created", "@type": "xsd:dateTime"},
    "modified": {"@id": "dcterms:modified", "@type": "xsd:dateTime"},
    "generated": {"@id": "dcterms:issued", "@type": "xsd:dateTime"},
    "conformsTo": {"@type": "@id", "@id": "dcterms:conformsTo"},
    "label": {"@id": "rdfs:label"},
    "total": {"@id": "as:totalItems", "@type": "xsd:nonNegativeInteger"},
    "first": {"@type": "@id", "@id": "as:first"},
    "startIndex": {"@id": "as:startIndex", "@type": "xsd:nonNegativeInteger"},
    "items": {"@type": "@id", "@id": "as:items", "@container": "@list"},
}


def _load(url, options):
    assert url == w3c.CONTEXT, "nothing else is asked for"
    document = {"@context": CONTEXT}
    return {"contextUrl": None, "documentUrl": url, "document": document}


def expanded(case):
    """The annotations, after every term was looked up; a term that is unknown is an error."""
    written = w3c.write(case)
    (collection,) = jsonld.expand(json.loads(written), {"documentLoader": _load})
    assert collection["@type"] == [AS + "OrderedCollection"]
    (page,) = collection[AS + "first"]
    return page[AS + "items"][0]["@list"]


def shape_of(annotation):
    (target,) = annotation[OA + "hasTarget"]
    (selector,) = target[OA + "hasSelector"]
    assert selector["@type"] == [OA + "SvgSelector"]
    root = ET.fromstring(selector[RDF_VALUE][0]["@value"])
    (element,) = root
    number = {key: float(value) for key, value in element.attrib.items() if key != "points"}
    points = tuple(
        Point(*map(float, pair.split(","))) for pair in element.get("points", "").split()
    )
    match element.tag.rpartition("}")[2]:
        case "rect":
            return Rectangle(**number)
        case "ellipse":
            across, down = number["rx"], number["ry"]
            return Ellipse(
                x=number["cx"] - across, y=number["cy"] - down, width=2 * across, height=2 * down
            )
        case "circle":
            return PointMark(x=number["cx"], y=number["cy"])
        case "polyline":
            return Polyline(points=points)
        case "polygon":
            return Polygon(points=points)


def numbers(shape):
    if isinstance(shape, Polyline | Polygon):
        return [value for point in shape.points for value in (point.x, point.y)]
    return [getattr(shape, name) for name in shape.__struct_fields__]


def test_every_shape_comes_back_as_it_was():
    items = expanded(cases.room(cases.photo(), marks=cases.every_shape()))
    for item, (name, shape) in zip(items, cases.SHAPES.items(), strict=True):
        back = shape_of(item)
        assert type(back) is type(shape), name
        assert numbers(back) == pytest.approx(numbers(shape), abs=1e-9)


def test_every_key_is_a_term_of_the_vocabulary():
    marks = (*cases.every_shape(), cases.mark("x", cases.SHAPES["point"], by=cases.MODEL))
    about = Target(asset="film", frame=3, pts_us=4_500_000)
    case = cases.room(
        cases.photo(),
        cases.video(),
        marks=(*marks, cases.mark("f", cases.SHAPES["point"], "film", frame=3, pts_us=4_500_000)),
        comments=(cases.comment("hello"), cases.comment("here", about, "c2")),
    )
    known = {*CONTEXT, "@context"}

    def check(value):
        if isinstance(value, dict):
            stray = {key for key in value if key not in known and not key.startswith("consilium:")}
            assert not stray
            for each in value.values():
                check(each)
        elif isinstance(value, list):
            for each in value:
                check(each)

    check(json.loads(w3c.write(case)) | {"@context": None})
    assert len(expanded(case)) == 9
    # No relative address and no word of ours without its vocabulary survives as nothing.
    triples = jsonld.to_rdf(
        json.loads(w3c.write(case)),
        {"documentLoader": _load, "format": "application/n-quads"},
    )
    assert "urn:consilium:terms#review" in triples and f"{OA}SvgSelector" in triples


def test_what_the_model_made_is_labelled_unreviewed():
    shape = cases.SHAPES["rectangle"]
    marks = (cases.mark("mine", shape), cases.mark("its", shape, by=cases.MODEL, label="low"))
    mine, its = expanded(cases.room(cases.photo(), marks=marks))

    def tags(item):
        return [
            body[RDF_VALUE][0]["@value"]
            for body in item[OA + "hasBody"]
            if body[OA + "hasPurpose"][0]["@id"] == OA + "tagging"
        ]

    assert tags(mine) == [] and tags(its) == ["unreviewed"]
    assert mine[DC + "creator"][0]["@type"] == ["http://xmlns.com/foaf/0.1/Person"]
    assert its[DC + "creator"][0]["@type"] == [AS + "Application"]
    assert its[DC + "created"][0]["@value"] == "2023-11-14T22:13:25.000Z"


def test_a_mark_on_frame_27_names_that_frame_and_one_in_a_video_its_time():
    shape = cases.SHAPES["point"]
    marks = (
        cases.mark("a", shape, "series", frame=27),
        cases.mark("b", shape, "film", frame=3, pts_us=4_500_000),
    )
    case = cases.room(cases.series(), cases.video(), marks=marks)
    a, b = json.loads(w3c.write(case))["first"]["items"]
    assert a["target"]["source"]["id"].endswith("/assets/series/frames/27")
    assert b["target"]["source"]["id"].endswith("/assets/film/frames/3")
    assert b["target"]["consilium:time"]["value"] == "t=4.500000"


def test_labels_and_names_cannot_become_markup_or_terms():
    evil = '"}</svg><script>alert(1)</script>'
    marks = (cases.mark("m", cases.SHAPES["point"], label=evil),)
    (item,) = expanded(cases.room(cases.photo(name=evil), marks=marks))
    assert item[OA + "hasBody"][0][RDF_VALUE][0]["@value"] == evil
    assert w3c.element(cases.SHAPES["point"], id='"<').endswith("id='\"&lt;'/>")
