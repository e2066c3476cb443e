"""What is generated from the messages is whole, valid and fresh."""

import json
import re
from typing import get_args

import jsonschema
import pytest

from protocol import messages, schema
from protocol.errors import CLOSE_MEANINGS, MEANINGS

CLASSES = [
    member
    for union in (messages.AnyClientMessage, messages.AnyServerMessage, messages.AnyOp)
    for member in get_args(union)
]


def vectors(name):
    return json.loads((schema.ROOT / "tests/vectors" / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def validate():
    parsed = json.loads(schema.json_schema())
    jsonschema.Draft202012Validator.check_schema(parsed)

    def valid(name, message):
        one = {**parsed, "anyOf": [{"$ref": f"#/$defs/{name}"}]}
        return jsonschema.Draft202012Validator(one).is_valid(message)

    return valid


def test_the_generated_files_are_fresh():
    assert schema.stale() == []


def test_check_names_a_stale_file_and_exits_1(capsys, monkeypatch, tmp_path):
    for path in schema.GENERATED:
        copy = tmp_path / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((schema.ROOT / path).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(schema, "ROOT", tmp_path)
    assert schema.main(["--check"]) == 0
    (tmp_path / schema.TYPES).write_text("// old", encoding="utf-8")
    text = (tmp_path / schema.REFERENCE).read_text(encoding="utf-8")
    (tmp_path / schema.REFERENCE).write_text(text.replace("`goaway`", "gone"), encoding="utf-8")
    assert schema.main(["--check"]) == 1
    told = capsys.readouterr().err
    assert str(schema.TYPES) in told and str(schema.REFERENCE) in told
    assert str(schema.JSON_SCHEMA) not in told
    assert schema.main([]) == 0
    assert schema.main(["--check"]) == 0


def test_an_unknown_argument_is_refused(capsys):
    assert schema.main(["--chek"]) == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_message_class_appears_everywhere(cls):
    name, tag = cls.__name__, cls.__struct_config__.tag
    assert re.search(rf'interface {name} {{\n  type: "{re.escape(tag)}";', schema.typescript())
    assert json.loads(schema.json_schema())["$defs"][name]["properties"]["type"] == {"enum": [tag]}
    assert f"#### {name}: `{tag}`" in schema.tables()


def test_every_code_appears_everywhere():
    types, tables = schema.typescript(), schema.tables()
    for code, meaning in MEANINGS.items():
        assert f'  | "{code}"' in types
        assert f"| `{code.value}` | {meaning.when} |" in tables
    for close in CLOSE_MEANINGS:
        assert f"  {close.value}: {{ name:" in types
        assert f"| {close.value} | `{close.name}` |" in tables


def test_optional_fields_are_optional_and_points_are_pairs():
    types = schema.typescript()
    assert "  resume?: Position | null;" in types
    assert "  session: string;" in types
    assert "export type Point = readonly [x: Coordinate, y: Coordinate];" in types


def test_a_server_message_union_names_the_events_by_their_union():
    union = schema.typescript().partition("export type AnyServerMessage =")[2]
    assert "| AnyEvent;" in union and "TurnDelta" not in union


@pytest.mark.parametrize("side", ["client", "server"])
def test_the_json_schema_takes_the_valid_vectors(side, validate):
    for case in vectors(f"{side}_messages.json")["valid"]:
        for one in case["messages"]:
            assert validate(f"Any{side.title()}Message", one["message"]), case["name"]
            assert validate(one["class"], one["message"]), case["name"]


@pytest.mark.parametrize("side", ["client", "server"])
def test_the_json_schema_refuses_what_the_codec_calls_a_bad_message(side, validate):
    for case in vectors(f"{side}_messages.json")["invalid"]:
        if case["code"] in ("bad_message", "unknown_type"):
            message = json.loads(case["frame"])
            assert not validate(f"Any{side.title()}Message", message), case["name"]


def test_the_json_schema_takes_the_snapshots_of_the_vectors(validate):
    for case in vectors("room_history.json"):
        assert validate("Snapshot", case["snapshot"]), case["name"]
        assert all(validate("AnyEvent", event) for event in case["events"]), case["name"]
