"""The public face: `import consilium` and `consilium.connect(…)`."""

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
