"""The formats by their names; what writes each is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from server.export.case import Case, NotExportable


@dataclass(frozen=True, slots=True)
class Form:
    """One format: the module that writes it, and what its files are."""

    module: str
    media_type: str
    suffix: str
    extra: str = ""


NDJSON = "ndjson"
FORMATS: dict[str, Form] = {
    "w3c": Form("w3c", 'application/ld+json; profile="http://www.w3.org/ns/anno.jsonld"', "jsonld"),
    "coco": Form("coco", "application/json", "json"),
    "dicom-sr": Form("dicom_sr", "application/dicom", "dcm", extra="export"),
    "fhir": Form("fhir", "application/fhir+json", "fhir.json"),
    "html": Form("html", "text/html; charset=utf-8", "html", extra="export"),
    NDJSON: Form("ndjson", "application/x-ndjson", "ndjson"),
}
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class Written:
    """A finished export."""

    content: bytes
    media_type: str
    suffix: str


def write(name: str, case: Case) -> Written:
    """Write a case in any format but the log's; raises `NotExportable` with a sentence."""
    form = FORMATS[name]
    content = writer(form)(case)
    if content.startswith(_ZIP):
        return Written(content, "application/zip", "zip")
    return Written(content, form.media_type, form.suffix)


def writer(form: Form) -> Callable[[Case], bytes]:
    """Import what writes a format; raises `NotExportable` where a package is missing."""
    try:
        module = import_module(f"server.export.{form.module}")
    except ImportError as error:
        extra = f"; pip install 'consilium[{form.extra}]'" if form.extra else ""
        raise NotExportable(f"this server lacks {error.name}{extra}") from None
    return cast("Callable[[Case], bytes]", module.write)
