"""The main job on lab sheets whose every letter is known."""

from __future__ import annotations

import time
import uuid

import pytest
from transformers import AutoTokenizer

import consilium
from engine.client import default_models_cache
from engine.embedded import TABLE
from protocol.events import TurnDelta, TurnDone, TurnStarted
from protocol.shapes import LabRow
from tests.support.labsheet_render import overlap, reads_same, render_sheet

pytestmark = pytest.mark.model

QUESTION = "Explain to the patient in detail which values are out of range and what they mean."
SHEETS = [(11, "en"), (12, "en"), (13, "zh")]


def box_of(box):
    return (box.x, box.y, box.width, box.height)


def read_cells(asset):
    """Everything that was read, as (text, box), finest first."""
    cells = []
    for row in asset.rows:
        if isinstance(row, LabRow):
            texts = {
                "analyte": row.analyte,
                "value": row.value,
                "unit": row.unit,
                "range": row.range,
            }
            cells += [(texts.get(name), box_of(box)) for name, box in row.cells.items()]
    cells += [(row.text, box_of(row.box)) for row in asset.rows if not isinstance(row, LabRow)]
    return cells


@pytest.mark.parametrize(("seed", "language"), SHEETS)
async def test_a_sheet_is_read_marked_and_answered(product, seed, language):
    sheet = render_sheet(seed, language)
    assert len(sheet.rows) >= 12 and len(sheet.out_of_range) == 4
    async with consilium.connect(
        f"ws://127.0.0.1:{product.port}", room=f"sheet-{uuid.uuid4().hex[:8]}", name="Dr Wu"
    ) as room:
        asset_id = await room.upload(sheet.png, name="sheet.png")
        await room.until(lambda: room.state.assets[asset_id].status == "read")
        asset = room.state.assets[asset_id]
        check_boxes_and_text(sheet, asset)
        check_flags(sheet, asset, room.state)
        await check_answer(room, asset)


def check_boxes_and_text(sheet, asset):
    found = read_cells(asset)
    covered = right = 0
    for drawn in sheet.cells:
        text, best = max(
            ((text, overlap(drawn.box, box)) for text, box in found), key=lambda pair: pair[1]
        )
        covered += best >= 0.5
        right += best >= 0.5 and text is not None and reads_same(drawn.text, text)
    assert covered >= 0.95 * len(sheet.cells), f"{covered} of {len(sheet.cells)} cells"
    with_text = sum(1 for cell in sheet.cells if cell.field != "mark")
    assert right >= 0.95 * with_text, f"{right} of {with_text} texts"


def check_flags(sheet, asset, state):
    rows = [row for row in asset.rows if isinstance(row, LabRow)]
    flagged = {row.analyte: row.flag for row in rows if row.flag not in ("normal", "unknown")}
    assert len(flagged) == 4
    for truth in sheet.out_of_range:
        assert any(
            reads_same(truth.analyte, analyte) and flag == truth.flag
            for analyte, flag in flagged.items()
        ), truth
    marks = [mark for mark in state.annotations.values() if mark.by.kind == "model"]
    assert len(marks) == 4


async def check_answer(room, asset):
    events = room.events(TurnStarted, TurnDelta, TurnDone)
    began = time.monotonic()
    turn = await room.ask(QUESTION, assets=[asset.asset], max_tokens=160)
    deltas, first_at = [], None
    async for event in events:
        if isinstance(event, TurnDelta):
            first_at = first_at or time.monotonic()
            deltas.append(event)
        if isinstance(event, TurnDone):
            break
    total_s = time.monotonic() - began
    assert first_at is not None and first_at - began < 0.3 * total_s
    offsets = [delta.offset for delta in deltas]
    assert offsets == sorted(set(offsets)), "offsets strictly increase"
    text = "".join(delta.text for delta in deltas)
    assert all(text[delta.offset :].startswith(delta.text) for delta in deltas)
    record = await room.fetch_turn_record(turn.turn)
    tokenizer = AutoTokenizer.from_pretrained(model_folder())
    assert text == record["text"]
    assert tokenizer.encode(text, add_special_tokens=False) == record["token_ids"]
    for row in asset.rows:
        if isinstance(row, LabRow):
            cells = (row.analyte, row.value, row.unit, row.range)
            lines = record["prompt"].splitlines()
            assert any(all(cell in line for cell in cells) for line in lines), cells


def model_folder():
    import os

    return TABLE["smollm2-135m"].folder(default_models_cache(dict(os.environ)))


async def test_without_the_sheet_the_answer_is_another(product):
    sheet = render_sheet(11, "en")
    answers = []
    for with_sheet in (True, False):
        async with consilium.connect(
            f"ws://127.0.0.1:{product.port}", room=f"sheet-{uuid.uuid4().hex[:8]}", name="Dr Wu"
        ) as room:
            if with_sheet:
                await room.upload(sheet.png, name="sheet.png")
            turn = await room.ask(QUESTION, max_tokens=60)
            answers.append((await turn.done()).text)
    assert answers[0] != answers[1]
    assert all(answers)


async def test_a_second_question_computes_only_what_is_new(product):
    async with consilium.connect(
        f"ws://127.0.0.1:{product.port}", room=f"again-{uuid.uuid4().hex[:8]}", name="Dr Wu"
    ) as room:
        await room.upload(render_sheet(11, "en").png, name="sheet.png")
        events = room.events(TurnDone)
        for question in ("Which values are high?", "And which are low?"):
            await (await room.ask(question, max_tokens=24)).done()
        first, second = await anext(events), await anext(events)
        # Everything of the first turn but the template's last marks is known already.
        assert second.cached_tokens >= first.prompt_tokens + first.answer_tokens - 8
