"""A snapshot is whole and comes back as it was."""

import msgspec

from protocol.shapes import Actor, Annotation, PointMark, Target
from protocol.state import AnnotationState, AssetState, Person, Snapshot, TurnState

MEI = Actor(id="p-1", name="Mei")


def test_a_snapshot_comes_back_as_it_was():
    mark = Annotation(id="a-1", target=Target(asset="as-1"), shape=PointMark(x=1.0, y=2.0))
    whole = Snapshot(
        seq=3,
        epoch="e1",
        assets=(AssetState(asset="as-1", name="sheet.png", by=MEI, status="read"),),
        annotations=(AnnotationState(annotation=mark, by=MEI, seq=2, changed_seq=3, deleted=True),),
        turns=(TurnState(turn="t-1", question="?", by=MEI, at=1, seq=3, timings={"s": 0.5}),),
    )
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Snapshot) == whole


def test_an_empty_room_is_its_number_alone():
    assert msgspec.json.encode(Snapshot(seq=0, epoch="e1")) == b'{"seq":0,"epoch":"e1"}'


def test_a_state_of_a_later_version_is_read():
    person = msgspec.json.decode(b'{"participant":"p-1","name":"Mei","mood":"fine"}', type=Person)
    assert person == Person(participant="p-1", name="Mei")
