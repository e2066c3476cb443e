"""The room as a FHIR R4 bundle around one DiagnosticReport; it is valid as R4B, too.

Everything is `preliminary`, because nobody signs in a room. What a model or a machine made or read
has the security label AIAST (asserted by artificial intelligence), a tag `unreviewed`, a note that
says so and a Device in place of a performer. There is no Patient: a room does not know one, and
what a DICOM file says of whom it shows stays in the file.
"""

from __future__ import annotations

import json
import uuid
from typing import Any
from xml.sax.saxutils import escape

from protocol.shapes import Actor, LabRow, Shape
from protocol.state import AnnotationState, AssetState, CommentState, TurnState
from server.export import case as c
from server.export.w3c import svg

REVIEW_SYSTEM = "urn:consilium:review"
_V3 = "http://terminology.hl7.org/CodeSystem/v3-"
_CATEGORIES = "http://terminology.hl7.org/CodeSystem/observation-category"
_NAMES = uuid.UUID("9d1d2a44-6a3b-5d39-8d43-0f6f8f0e6a11")
_FLAGS = {"low": ("L", "Low"), "high": ("H", "High"), "normal": ("N", "Normal")}
_FLAGS["abnormal"] = ("A", "Abnormal")
_COMPARATORS = {"<=": "<=", "≤": "<=", ">=": ">=", "≥": ">=", "<": "<", ">": ">"}
Resource = dict[str, Any]


def write(case: c.Case) -> bytes:
    """The bundle: a report, what it rests on, and who made it."""
    return json.dumps(_Bundle(case).whole(), ensure_ascii=False).encode()


class _Bundle:
    """Gathers resources; each who is named becomes a resource when first named."""

    def __init__(self, case: c.Case) -> None:
        self._case = case
        self._entries: dict[str, Resource] = {}
        self._assets = {asset.asset: asset for asset in c.standing_assets(case)}

    def whole(self) -> Resource:
        case = self._case
        media = [self._media(asset) for asset in self._assets.values()]
        results = [
            self._lab(row, asset)
            for asset in self._assets.values()
            for row in asset.rows
            if isinstance(row, LabRow) and row.analyte.strip()
        ]
        results += [self._mark(mark, asset) for mark, asset in c.standing_marks(case)]
        results += [self._comment(comment) for comment in case.snapshot.comments]
        results += [self._answer(turn) for turn in case.snapshot.turns if turn.text.strip()]
        report = self._report(media, results)
        entries = [report, *(r for r in self._entries.values())]
        return {
            "resourceType": "Bundle",
            "type": "collection",
            "identifier": {"system": "urn:ietf:rfc:3986", "value": self._urn("bundle")},
            "timestamp": c.moment(case.at),
            "entry": [{"fullUrl": f"urn:uuid:{r['id']}", "resource": r} for r in entries],
        }

    def _report(self, media: list[Resource], results: list[Resource]) -> Resource:
        case = self._case
        words = (
            f"Consultation room {case.room}, {len(results)} observations on {len(media)} assets. "
            "Preliminary: nobody signed it. "
            f"Observations with the tag {c.UNREVIEWED!r}: {c.UNREVIEWED_SENTENCE}"
        )
        report = self._resource("DiagnosticReport", "report")
        report |= {
            "text": {
                "status": "generated",
                "div": f'<div xmlns="http://www.w3.org/1999/xhtml">{escape(words)}</div>',
            },
            "identifier": [{"system": case.room_address, "value": str(case.snapshot.seq)}],
            "status": "preliminary",
            "code": {
                "coding": [{"system": "http://loinc.org", "code": "11488-4"}],
                "text": f"Consultation in room {case.room}",
            },
            "issued": c.moment(case.at),
        }
        if performers := [
            {"reference": f"urn:uuid:{r['id']}"}
            for r in self._entries.values()
            if r["resourceType"] == "Practitioner"
        ]:
            report["performer"] = performers
        if results:
            report["result"] = results
        if media:
            report["media"] = [{"link": link} for link in media]
        return report

    # -- what the report rests on ---------------------------------------------------------------

    def _media(self, asset: AssetState) -> Resource:
        media = self._resource("Media", f"assets/{asset.asset}")
        is_done = asset.status == "read"
        attachment = {"url": f"{self._case.room_address}/assets/{asset.asset}/original"}
        for key, value in (("contentType", asset.media_type), ("title", asset.name)):
            if value.strip():
                attachment[key] = value
        media |= {"status": "completed" if is_done else "in-progress", "content": attachment}
        for key, number in (("width", asset.width), ("height", asset.height)):
            if number:
                media[key] = number
        if asset.frames > 1:
            media["frames"] = asset.frames
        if asset.duration_s:
            media["duration"] = round(asset.duration_s, 3)
        return self._kept(media)

    def _mark(self, mark: AnnotationState, asset: AssetState) -> Resource:
        annotation = mark.annotation
        observation = self._observation(f"annotations/{annotation.id}", mark.by)
        observation |= {
            "category": _concepts(_CATEGORIES, "imaging"),
            "code": {"text": "Mark on a picture"},
            "interpretation": [{"text": annotation.severity}],
            "derivedFrom": [self._link("Media", f"assets/{asset.asset}")],
            "component": self._place(asset, annotation.shape, annotation.target.frame),
        }
        if annotation.label.strip():
            observation["valueString"] = annotation.label
        if (at := self._case.times.get(mark.changed_seq)) is not None:
            observation["issued"] = c.moment(at)
        return self._kept(observation)

    def _lab(self, row: LabRow, asset: AssetState) -> Resource:
        observation = self._observation(f"rows/{asset.asset}/{row.id}", None)
        observation |= {
            "category": _concepts(_CATEGORIES, "laboratory"),
            "code": {"text": row.analyte},
            "derivedFrom": [self._link("Media", f"assets/{asset.asset}")],
            "component": self._place(asset, row.box, row.frame),
            **_value(row),
        }
        if row.flag in _FLAGS:
            code, display = _FLAGS[row.flag]
            system = f"{_V3}ObservationInterpretation"
            observation["interpretation"] = _concepts(system, code, display)
        limits: Resource = {
            side: _quantity(number, row.unit)
            for side, number in (("low", row.low), ("high", row.high))
            if number is not None
        }
        if row.range.strip():
            limits |= {"text": row.range}
        if limits:
            observation["referenceRange"] = [limits]
        return self._kept(observation)

    def _comment(self, comment: CommentState) -> Resource:
        observation = self._observation(f"comments/{comment.id}", comment.by)
        observation |= {"code": {"text": "Comment"}, "issued": c.moment(comment.at)}
        if comment.text.strip():
            observation["valueString"] = comment.text
        if comment.target is not None and comment.target.asset in self._assets:
            link = self._link("Media", f"assets/{comment.target.asset}")
            observation["derivedFrom"] = [link]
        return self._kept(observation)

    def _answer(self, turn: TurnState) -> Resource:
        model = Actor(id="model", name=turn.model or "model", kind="model")
        observation = self._observation(f"turns/{turn.turn}", model)
        question = turn.question.strip()
        observation |= {
            "code": {"text": f"Answer of a model to: {question}" if question else "Answer"},
            "issued": c.moment(turn.at),
            "valueString": turn.text,
        }
        if turn.status != "done":
            observation["note"] = [*observation["note"], {"text": f"The answer is {turn.status}."}]
        links = [self._link("Media", f"assets/{a}") for a in turn.assets if a in self._assets]
        if links:
            observation["derivedFrom"] = links
        return self._kept(observation)

    # -- parts ----------------------------------------------------------------------------------

    def _observation(self, path: str, by: Actor | None) -> Resource:
        """An observation by somebody; None is the machine that reads pictures."""
        observation = self._resource("Observation", path)
        observation["status"] = "preliminary"
        if by is not None and not c.is_unreviewed(by):
            observation["performer"] = [self._person(by)]
            return observation
        observation["meta"] = {
            "security": _coding(f"{_V3}ObservationValue", "AIAST"),
            "tag": _coding(REVIEW_SYSTEM, c.UNREVIEWED),
        }
        observation["note"] = [{"text": c.UNREVIEWED_SENTENCE}]
        observation["device"] = self._device(by.name if by is not None else "reader of pictures")
        return observation

    def _place(self, asset: AssetState, shape: Shape, frame: int) -> list[Resource]:
        drawn = svg(shape, *c.frame_size(asset, frame))
        place: list[Resource] = [
            {"code": {"text": "Shape, SVG in pixels of the upright picture"}, "valueString": drawn}
        ]
        if asset.keyframes or asset.frames > 1:
            place.append({"code": {"text": "Frame, from 0"}, "valueInteger": frame})
        return place

    def _person(self, by: Actor) -> Resource:
        person = self._resource("Practitioner", f"participants/{by.id}")
        name = by.name.strip() or by.id
        person["identifier"] = [
            {"system": f"{self._case.room_address}/participants", "value": by.id}
        ]
        person["name"] = [{"text": name}]
        if by.department.strip():
            person["qualification"] = [{"code": {"text": by.department}}]
        return self._kept(person)

    def _device(self, name: str) -> Resource:
        device = self._resource("Device", f"devices/{name}")
        device["deviceName"] = [{"name": name, "type": "model-name"}]
        return self._kept(device)

    def _resource(self, kind: str, path: str) -> Resource:
        return {"resourceType": kind, "id": str(self._id(f"{kind}/{path}"))}

    def _kept(self, resource: Resource) -> Resource:
        self._entries.setdefault(resource["id"], resource)
        return {"reference": f"urn:uuid:{resource['id']}"}

    def _link(self, kind: str, path: str) -> Resource:
        return {"reference": self._urn(f"{kind}/{path}")}

    def _urn(self, path: str) -> str:
        return f"urn:uuid:{self._id(path)}"

    def _id(self, path: str) -> uuid.UUID:
        # The same thing has the same name in every export of its room.
        return uuid.uuid5(_NAMES, f"{self._case.room_address}/{path}")


def _value(row: LabRow) -> Resource:
    value = row.value.strip()
    if row.number is None:
        if not value:
            reason = _coding("http://terminology.hl7.org/CodeSystem/data-absent-reason", "unknown")
            return {"dataAbsentReason": {"coding": reason}}
        return {"valueString": f"{value} {row.unit}".strip()}
    quantity = _quantity(row.number, row.unit)
    for sign, comparator in _COMPARATORS.items():
        if value.startswith(sign):
            quantity["comparator"] = comparator
            break
    return {"valueQuantity": quantity}


def _quantity(number: float, unit: str) -> Resource:
    return {"value": number, **({"unit": unit} if unit.strip() else {})}


def _coding(system: str, code: str, display: str = "") -> list[Resource]:
    return [{"system": system, "code": code, **({"display": display} if display else {})}]


def _concepts(system: str, code: str, display: str = "") -> list[Resource]:
    return [{"coding": _coding(system, code, display)}]
