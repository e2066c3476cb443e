"""The public face: join a room, send pictures, ask, and watch the answer come.

async with consilium.connect("ws://127.0.0.1:8760", room="ward-3", name="Mei") as room:
    asset = await room.upload(Path("sheet.png"))
    turn = await room.ask("Which values are out of range?", assets=[asset])
    async for text in turn:
        print(text, end="", flush=True)
"""

from protocol.client import connect
from protocol.consultation import Consultation, TurnHandle
from protocol.joining import (
    AnswerFailed,
    ConsultationError,
    Disconnected,
    FellBehind,
    Refused,
    UploadFailed,
)

__all__ = [
    "AnswerFailed",
    "Consultation",
    "ConsultationError",
    "Disconnected",
    "FellBehind",
    "Refused",
    "TurnHandle",
    "UploadFailed",
    "connect",
]
