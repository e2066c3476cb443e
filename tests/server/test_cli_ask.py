"""What the terminal shows of a room's state."""

from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from protocol.errors import ErrorCode
from protocol.messages import AssetProgress
from protocol.room import RoomState
from protocol.shapes import Actor, LabRow, Rectangle, Span, SpeechRow, TextRow
from protocol.state import AssetState, TurnState
from server.cli_ask import Question, Screen, watch

WU = Actor(id="p-wu", name="Wu")
BOX = Rectangle(x=0, y=0, width=1, height=1)


def shown(screen):
    console = Console(width=100, record=True, force_terminal=False, file=open("/dev/null", "w"))
    with console.file:
        console.print(screen.render())
    return console.export_text()


@pytest.fixture
def screen():
    state = RoomState("e1")
    return Screen(SimpleNamespace(state=state))


def lab_row(analyte, flag):
    return LabRow(id=analyte, box=BOX, analyte=analyte, value="1", unit="g", range="2-3", flag=flag)


def test_a_lab_sheet_is_a_table_whose_flags_are_words_not_only_colours(screen):
    rows = (lab_row("Sodium", "low"), lab_row("[red]Evil", "normal"))
    screen.room.state.assets["a"] = AssetState(asset="a", name="sheet.png", by=WU, rows=rows)
    screen.assets.append("a")
    text = shown(screen)
    assert "Sodium" in text and "↓ low" in text
    # What stands on a sheet is never read as markup.
    assert "[red]Evil" in text


def test_a_picture_without_a_table_says_what_was_read(screen):
    rows = (TextRow(id="t", box=BOX, text="hello", score=1.0),)
    screen.room.state.assets["a"] = AssetState(
        asset="a", name="note.png", by=WU, rows=rows, width=30, height=20, status="read"
    )
    screen.assets.append("a")
    assert "note.png 30×20 read, 1 lines of text" in shown(screen)


def test_what_was_said_in_a_video_and_read_on_it_stands_with_its_times(screen):
    said = SpeechRow(id="s", start=61.5, end=63.0, text="Look at the sodium.")
    row = msgspec.structs.replace(lab_row("Sodium", "low"), frame=4, pts_us=64_000_000)
    screen.room.state.assets["a"] = AssetState(
        asset="a", name="round.mp4", by=WU, rows=(said, row), duration_s=70.0, status="committed"
    )
    screen.assets.append("a")
    screen.reading["a"] = AssetProgress(asset="a", stage="ocr", done=1, total=4)
    text = shown(screen)
    assert "round.mp4 1:10" in text and "1:01  Look at the sodium." in text and "1:04" in text
    assert "━" in text, "how far it is read"


def test_an_upload_on_its_way_has_a_bar(screen):
    screen.progress_of("big.jpg")(3, 10)
    assert "sending big.jpg" in shown(screen)
    screen.progress_of("big.jpg")(10, 10)
    assert "big.jpg" not in shown(screen)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"text": "It is"}, "It is …"),
        ({"text": "It is low.", "status": "done", "sight": "text"}, "not their pixels"),
        (
            {"status": "failed", "code": ErrorCode.ENGINE_LOST, "message": "it was lost"},
            "[failed] it was lost",
        ),
    ],
)
def test_an_answer_says_how_it_stands(screen, fields, said):
    span = Span(start=0, end=2, kind="entity")
    turn = TurnState(turn="t", question="?", by=WU, at=0, seq=1, spans=(span,), **fields)
    screen.turn = SimpleNamespace(state=turn)
    assert said in shown(screen)


async def test_a_server_that_is_not_there_is_one_line_and_a_status(capsys):
    asked = Question("ws://127.0.0.1:9/v1/rooms/r", "what?", (), "Wu", "", None)
    assert await watch(asked, open_timeout_s=1.0) == 1
    said = capsys.readouterr().err
    assert "is Consilium running at ws://127.0.0.1:9" in said.replace("\n", " ")


async def test_a_server_that_wants_a_token_says_how_to_give_one(start, capsys):
    server = await start(secret="a-secret-of-at-least-thirty-two-bytes!")
    asked = Question(f"ws://127.0.0.1:{server.port}/v1/rooms/r", "what?", (), "Wu", "", None)
    assert await watch(asked) == 1
    assert "--token-file" in capsys.readouterr().err
