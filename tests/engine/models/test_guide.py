"""Guided answers are JSON of their schema, whatever the model would rather say."""

from __future__ import annotations

import asyncio
import json

import jsonschema
import pytest
import torch

from engine.api import EngineCode, TurnDone, TurnFailed
from engine.config import EngineConfig
from engine.engine import LocalEngine
from engine.models.guide import MAX_SCHEMA_CHARS, BadSchema
from tests.engine.conftest import answer, question

FINDING = {
    "type": "object",
    "properties": {
        "analyte": {"type": "string", "maxLength": 12},
        "flag": {"enum": ["low", "normal", "high"]},
        "value": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["analyte", "flag", "value"],
    "additionalProperties": False,
}
SCHEMA = json.dumps(FINDING)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
async def test_an_answer_is_json_of_its_schema_beside_one_that_is_not(
    tiny, make_engine, temperature
):
    asked = {"max_new_tokens": 200, "temperature": temperature}
    async with make_engine(tiny) as engine:
        both = await asyncio.gather(
            answer(engine, question("A?", "t1", "s1", json_schema=SCHEMA, seed=4, **asked)),
            answer(engine, question("A?", "t2", "s2", max_new_tokens=200)),
        )
        alone = await answer(engine, question("A?", "t3", "s3", max_new_tokens=200))
    done = both[0][-1]
    assert isinstance(done, TurnDone) and done.finish == "stop"
    jsonschema.validate(json.loads(done.text), FINDING)
    assert len(done.confidences) == len(done.token_ids)
    assert both[1][-1].token_ids == alone[-1].token_ids


async def test_the_embedded_model_answers_in_json(embedded_model, make_engine):
    engine = await LocalEngine.load(EngineConfig(model=str(embedded_model)))
    await engine.start()
    try:
        asked = question("Sodium is 128 mmol/L. What is it?", json_schema=SCHEMA)
        done = (await answer(engine, asked))[-1]
    finally:
        await engine.stop()
    jsonschema.validate(json.loads(done.text), FINDING)


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "no json",
        "[1]",
        '{"type": "nonsense"}',
        '{"$ref": "https://example.org/schema.json"}',
        '{"type": "string", "pattern": "(?=a)b"}',
        "[" * 5_000,
        json.dumps({"enum": ["x" * MAX_SCHEMA_CHARS]}),
    ],
)
async def test_a_schema_that_cannot_be_kept_is_refused_with_a_code(tiny, make_engine, schema):
    async with make_engine(tiny) as engine:
        failed = (await answer(engine, question("A?", json_schema=schema)))[-1]
        assert isinstance(failed, TurnFailed), failed
        assert failed.code is EngineCode.SCHEMA_UNSUPPORTED and len(failed.message) < 400
        assert isinstance((await answer(engine, question("A?", "t2")))[-1], TurnDone)


def test_only_what_the_schema_allows_keeps_its_logit(tiny, tokenizer):
    guide = tiny.guides.compile('{"enum": [7]}')
    logits = guide.allow(torch.zeros(len(tokenizer)))
    assert tokenizer.decode(torch.isfinite(logits).nonzero()[:, 0]) == "7"
    assert guide.accept(int(logits.argmax()))


def test_a_model_without_an_end_cannot_be_guided(tiny):
    tiny.guides._end_tokens = []
    with pytest.raises(BadSchema):
        tiny.guides.compile("{}")
