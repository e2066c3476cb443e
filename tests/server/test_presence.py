"""Who is here, with the time passed in."""

from __future__ import annotations

from protocol.messages import Presence
from protocol.state import Person
from server.presence import PresenceBoard

MEI = Person(participant="mei", name="Mei")


def test_somebody_who_comes_twice_is_news_once_and_gone_when_the_last_socket_is():
    board = PresenceBoard(blip_s=2)
    assert board.came(1, MEI)
    assert not board.came(2, MEI)
    board.left(1, "mei", now=0)
    assert board.sweep(10) == ([], [])
    board.left(2, "mei", now=10)
    assert board.sweep(11.9) == ([], [])
    assert board.sweep(12) == (["mei"], ["mei"])
    assert board.people() == () and board.sweep(13) == ([], [])


def test_R52_who_is_back_within_the_blip_never_left():
    board = PresenceBoard(blip_s=2)
    board.came(1, MEI)
    board.left(1, "mei", now=0)
    assert not board.came(2, MEI)
    assert board.sweep(100) == ([], [])


def test_a_place_is_kept_over_a_blip_and_a_new_name_is_news():
    board = PresenceBoard(blip_s=2)
    board.came(1, MEI)
    assert board.moved("mei", Presence(x=3, y=4)).x == 3
    board.left(1, "mei", now=0)
    assert board.came(2, Person(participant="mei", name="Dr Mei"))
    assert (board.people()[0].name, board.people()[0].x) == ("Dr Mei", 3)


def test_who_is_not_here_is_nowhere():
    board = PresenceBoard(blip_s=2)
    assert board.moved("wu", Presence()) is None
    board.left(1, "wu", now=0)


def test_R20_who_is_at_two_processes_came_once_and_is_gone_when_nowhere():
    board = PresenceBoard(blip_s=2)
    assert board.heard("n1", [MEI], now=0) == [MEI]
    assert board.heard("n1", [MEI], now=1) == []
    assert not board.came(1, MEI)
    assert board.people() == (MEI,) == board.own()
    board.left(1, "mei", now=2)
    assert board.own() == ()
    assert board.sweep(4) == (["mei"], [])
    assert board.heard_gone("n1", "mei")
    assert not board.heard_gone("n1", "mei")
    assert board.people() == ()


def test_R49_R50_no_ghosts_stay_of_a_process_that_went_silent():
    board = PresenceBoard(blip_s=2)
    board.heard("n1", [MEI], now=0)
    board.heard("n2", [MEI], now=10)
    assert board.sweep(15) == ([], [])
    assert board.sweep(25) == ([], ["mei"])
