"""What the loop tells whoever reads beside it."""

from engine.neighbour import Neighbour


class Perception:
    def __init__(self):
        self.told = []

    def is_reading(self):
        return True

    def stand_still(self, is_wanted):
        self.told.append(is_wanted)


def test_reading_is_told_only_of_a_change():
    perception = Perception()
    neighbour = Neighbour(perception)
    for is_understanding in (False, True, True, False, False, True):
        neighbour.hush(is_understanding)
    assert perception.told == [True, False, True]
    assert neighbour.is_reading()


def test_without_perception_nothing_is_read():
    neighbour = Neighbour(None)
    neighbour.hush(True)
    assert not neighbour.is_reading()
