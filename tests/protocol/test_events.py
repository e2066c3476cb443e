"""Everything with a number goes one road, in order."""

from typing import get_args

import msgspec

from protocol import events as ev
from protocol.shapes import Actor

EVENTS = get_args(ev.AnyEvent)
MEI = Actor(id="p-1", name="Mei")


def test_every_event_is_ordered_and_never_replaced():
    for cls in EVENTS:
        assert cls.lane == "ordered", cls.__name__
        assert cls.coalesce_key is ev.Event.coalesce_key


def test_the_union_holds_every_event():
    assert set(EVENTS) == set(ev.Event.__subclasses__()) - {ev.UnknownEvent}


def test_every_event_says_who_and_when():
    for cls in EVENTS:
        required = {field.name for field in msgspec.structs.fields(cls) if field.required}
        assert {"at", "actor"} <= required, cls.__name__


def test_an_event_has_no_number_before_the_log_gives_one():
    event = ev.TurnCancelled(at=1, actor=MEI, turn="t-1")
    assert (event.seq, event.epoch) == (0, "")
    assert b"seq" not in msgspec.json.encode(event)


def test_a_patch_event_says_only_what_changed():
    event = ev.AnnotationPatched(at=1, actor=MEI, id="a-1", severity="critical")
    assert msgspec.json.decode(msgspec.json.encode(event)) == {
        "type": "annotation.patch",
        "at": 1,
        "actor": {"id": "p-1", "name": "Mei"},
        "id": "a-1",
        "severity": "critical",
    }
