"""What of a DICOM file may be told, and who it is about, which may not.

Nothing is passed on because it looks harmless. Numbers that describe pixels are, and words only
when they are defined terms of the standard: a name typed into "body part" is not one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydicom.charset import convert_encodings, decode_bytes
from pydicom.dataset import Dataset
from pydicom.uid import UID

from engine.api import Imaging
from engine.perception.detect import DAMAGE

# The tags that `describe` reads, beside the pixels' own module (group 0028).
TOLD = (
    "Modality",
    "BodyPartExamined",
    "ViewPosition",
    "ImageLaterality",
    "Laterality",
    "ImageOrientationPatient",
    "PixelSpacing",
    "ImagerPixelSpacing",
)

# PS3.3 C.7.3.1.1.1, retired terms left out.
_MODALITIES = frozenset(
    "ANN AR ASMT AU BDUS BI BMD CFM CR CT CTPROTOCOL DMS DG DOC DX ECG EEG EMG EOG EPS ES FID "
    "GM HC HD IO IOL IVOCT IVUS KER KO LEN LS M3D MG MR NM OAM OCT OP OPM OPT OPTBSV OPTENF "
    "OPV OSS OT PA PLAN POS PR PT PX REG RESP RF RG RTDOSE RTIMAGE RTINTENT RTPLAN RTRAD "
    "RTRECORD RTSEGANN RTSTRUCT RWV SEG SM SMR SR SRF STAIN TEXTUREMAP TG US VA XA XC".split()
)
# PS3.16 annex L, as far as whole regions and organs go.
_BODY_PARTS = frozenset(
    "ABDOMEN ABDOMENPELVIS ADRENAL ANKLE AORTA ARM AXILLA BACK BLADDER BRAIN BREAST BRONCHUS "
    "BUTTOCK CALCANEUS CALF CAROTID CEREBELLUM CERVIX CHEEK CHEST CHESTABDOMEN CHESTABDPELVIS "
    "CLAVICLE COCCYX COLON CSPINE CTSPINE DUODENUM EAR ELBOW ESOPHAGUS EXTREMITY EYE EYELID "
    "FACE FEMUR FINGER FOOT FOREARM GALLBLADDER HAND HEAD HEADNECK HEART HIP HUMERUS ILEUM "
    "ILIUM JAW JEJUNUM KIDNEY KNEE LARYNX LEG LIVER LSPINE LSSPINE LUNG MAXILLA MEDIASTINUM "
    "MOUTH NECK NECKCHEST NECKCHESTABDOMEN NECKCHESTABDPELV NOSE ORBIT OVARY PANCREAS PAROTID "
    "PATELLA PELVIS PENIS PHARYNX PROSTATE RADIUS RECTUM RIB SACRUM SCALP SCAPULA SCROTUM "
    "SELLA SHOULDER SIJOINT SINUS SKULL SPINE SPLEEN SSPINE STERNUM STOMACH SUBMANDIBULAR "
    "TESTIS THIGH THUMB THYMUS THYROID TIBIA TLSPINE TMJ TOE TONGUE TRACHEA TSPINE ULNA "
    "URETER URETHRA UTERUS VAGINA VULVA WHOLEBODY WRIST ZYGOMA".split()
)
_VIEWS = frozenset(
    "AP PA LL RL RLD LLD RLO LLO CC MLO ML LM LMO FB SIO ISO XCC XCCL XCCM LATERAL OBLIQUE".split()
)
_SIDES = {"L": "left", "R": "right", "B": "both sides"}
# The axis that a slice is seen along, by the greatest part of its normal in patient coordinates.
_PLANES = ("sagittal", "coronal", "axial")
_OBLIQUE_BELOW = 0.9

_LATIN = ("", "ISO_IR 6", "ISO_IR 100", "ISO 2022 IR 6", "ISO 2022 IR 100")

# Escapes that choose the set of the lower 128 bytes; true for sets of two-byte characters.
_G0_ESCAPES = {
    b"\x1b$B": True,
    b"\x1b$@": True,
    b"\x1b$(D": True,
    b"\x1b(B": False,
    b"\x1b(J": False,
}


@dataclass(frozen=True)
class PersonNames:
    """One person's name in the three groups of a DICOM name, each "" where the file has none."""

    alphabetic: str
    ideographic: str
    phonetic: str


def describe(dataset: Dataset, groups: list[Dataset]) -> Imaging:
    """Say what the picture is of; `groups` are items that hold attributes of the first frame."""
    return Imaging(
        modality=_term(dataset, "Modality", _MODALITIES),
        body_part=_term(dataset, "BodyPartExamined", _BODY_PARTS),
        view=_term(dataset, "ViewPosition", _VIEWS) or _plane([dataset, *groups]),
        laterality=_side(dataset),
        pixel_spacing=_spacing([dataset, *groups]),
    )


def kind_of(dataset: Dataset) -> str:
    """Name the object by the standard's own name of its class: "Comprehensive SR Storage"."""
    uid = str(dataset.get("SOPClassUID") or dataset.file_meta.get("MediaStorageSOPClassUID", ""))
    name = UID(uid).name if uid else ""
    if name != uid:
        return name
    modality = _term(dataset, "Modality", _MODALITIES)
    return f"{modality} object" if modality else "DICOM object"


def patient_names(dataset: Dataset) -> PersonNames:
    """Read the patient's name as it was meant, by the file's character sets (0008,0005).

    The one place where an identity is read. Nothing that leaves the decoder is made from it.
    """
    element = dataset.get_item("PatientName")
    if element is None or element.value is None:
        return PersonNames("", "", "")
    value = element.value
    raw = value if isinstance(value, bytes) else getattr(value, "original_string", b"")
    if isinstance(raw, str):
        raw = raw.encode("utf-8")
    declared = dataset.get("SpecificCharacterSet") or ""
    terms = [str(each) for each in ([declared] if isinstance(declared, str) else declared)]
    encodings = convert_encodings(_truly(raw, terms))
    texts = [decode_bytes(part, encodings, {0x5E}).rstrip(" \0") for part in _groups(raw)]
    return PersonNames(*(texts + ["", "", ""])[:3])


def _groups(raw: bytes) -> list[bytes]:
    """Split at "=", which within two-byte kanji is half of a character: of \u51fa, for one."""
    groups, at, is_double = [bytearray()], 0, False
    while at < len(raw):
        length = 2 if is_double else 1
        for escape, double in _G0_ESCAPES.items():
            if raw.startswith(escape, at):
                length, is_double = len(escape), double
        if raw[at : at + length] == b"=":
            groups.append(bytearray())
        else:
            groups[-1] += raw[at : at + length]
        at += length
    return [bytes(group) for group in groups[:3]]


def _truly(raw: bytes, terms: list[str]) -> list[str]:
    """See through files that say Latin-1, or nothing, and hold UTF-8 or GBK.

    Latin names have single letters above 127. Only where all such bytes come in pairs that are
    common Han characters, or are whole UTF-8, is the file not taken at its word.
    """
    if any(term not in _LATIN for term in terms) or raw.isascii():
        return terms
    try:
        raw.decode("utf-8")
        return ["ISO_IR 192"]
    except UnicodeDecodeError:
        pass
    return ["GB18030"] if _is_common_han(raw) else terms


def _is_common_han(raw: bytes) -> bool:
    at = 0
    while at < len(raw):
        if raw[at] < 0x80:
            at += 1
        # Level 1 of GB 2312: the 3,755 characters in daily use.
        elif 0xB0 <= raw[at] <= 0xD7 and at + 1 < len(raw) and raw[at + 1] >= 0xA1:
            at += 2
        else:
            return False
    return True


def _term(dataset: Dataset, keyword: str, known: frozenset[str]) -> str:
    value = _value(dataset, keyword)
    term = value.strip().upper() if isinstance(value, str) else ""
    return term if term in known else ""


def _side(dataset: Dataset) -> str:
    value = _value(dataset, "ImageLaterality") or _value(dataset, "Laterality")
    return _SIDES.get(value, "") if isinstance(value, str) else ""


def _plane(sources: list[Dataset]) -> str:
    numbers = _numbers(sources, "ImageOrientationPatient", 6)
    if numbers is None:
        return ""
    normal = np.abs(np.cross(numbers[:3], numbers[3:]))
    axis = int(normal.argmax())
    return f"{'' if normal[axis] >= _OBLIQUE_BELOW else 'oblique '}{_PLANES[axis]}"


def _spacing(sources: list[Dataset]) -> tuple[float, float] | None:
    for keyword in ("PixelSpacing", "ImagerPixelSpacing"):
        numbers = _numbers(sources, keyword, 2)
        if numbers is not None and all(0 < number < 1_000 for number in numbers):
            return numbers[0], numbers[1]
    return None


def _numbers(sources: list[Dataset], keyword: str, count: int) -> list[float] | None:
    for source in sources:
        value = _value(source, keyword)
        try:
            numbers = [float(each) for each in value] if value is not None else []
        except DAMAGE:
            continue
        if len(numbers) == count and np.isfinite(numbers).all():
            return numbers
    return None


def _value(dataset: Dataset, keyword: str) -> Any:
    """A value, or None when there is none or it cannot be read."""
    try:
        return dataset.get(keyword)
    except DAMAGE:
        return None
