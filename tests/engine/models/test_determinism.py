"""Bits that depend on nothing beside a session: checked on this machine, not assumed."""

from __future__ import annotations

import pytest
import torch

from engine.api import Message, Turn
from engine.config import EngineConfig
from engine.kv.context import GRAIN, Context
from engine.models.backend import Backend, Segment, _Step
from engine.models.determinism import is_deterministic
from engine.models.loaded import LoadedModel
from tests.engine.conftest import tiny_model

CAN_PACK = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
needs_kernels = pytest.mark.skipif(not CAN_PACK, reason="this CPU has no bf16 matrix kernels")


@pytest.mark.parametrize(
    "family", ["llama", "qwen3", "windowed", "recurrent", "gemma4", "gemma4_moe"]
)
def test_padded_attention_computes_what_plain_attention_does(family):
    """In fp32 to rounding: the masks let every query see the same keys."""
    tokens = [(7 * n) % 97 for n in range(61)]
    logits = []
    for padded in (False, True):
        backend = Backend(tiny_model(family, 100), is_deterministic=padded)
        context = Context(backend.shape)
        context.resize(GRAIN)
        parts = [
            backend.run([Segment(context, tokens[at : at + window], wants_logits=True)])
            for at, window in ((0, 40), (40, 1), (41, 13), (54, 7))
        ]
        logits.append(torch.cat(parts))
    assert torch.allclose(logits[0], logits[1], atol=1e-3)


def test_padded_attention_opens_the_same_blocks():
    """Tokens of a picture see each other inside a window, whatever fills it up."""
    masks = []
    blocks = ((21, 26), (27, 29))
    for step in (_Step([], False), _Step([], True)):
        if step.is_padded:
            mask = step.padded_mask(11, 16, 31, 32, 8, blocks, torch.device("cpu"))[:11, :31]
        else:
            mask = step.mask(11, 31, 8, blocks, torch.device("cpu"))
        masks.append(mask)
    assert torch.equal(*masks)
    # The query of token 21: seven before it, itself, and the rest of its picture.
    assert masks[0][1].nonzero()[:, 0].tolist() == list(range(14, 26))


@needs_kernels
@pytest.mark.model
def test_E63_the_embedded_model_is_deterministic_in_its_mode_and_not_in_the_fast_one(
    embedded_model,
):
    """The fast mode failing shows that the check can see a difference at all."""
    fast = Backend.load(str(embedded_model), "bf16", "cpu")
    assert not is_deterministic(fast)
    exact = Backend.load(str(embedded_model), "bf16", "cpu", is_deterministic=True)
    assert is_deterministic(exact)


@needs_kernels
@pytest.mark.model
async def test_E63_an_answer_is_the_same_alone_and_among_seven_others_in_any_window(
    embedded_model, make_engine
):
    """Bit-equal logits choose the same tokens, at temperature 0 and at any other."""
    import asyncio

    config = EngineConfig(model=str(embedded_model), dtype="bf16", deterministic=True)
    model = LoadedModel.load(config)

    def asked(number: int) -> Turn:
        text = f"What does value {number} of a blood count mean for the patient? " * (number + 1)
        message = Message(role="user", text=text)
        return Turn(
            id=f"t{number}",
            session=f"s{number}",
            tenant="c",
            messages=(message,),
            max_new_tokens=24,
            temperature=0.8 * (number % 2),
            seed=number,
        )

    async def answer(engine, number: int) -> tuple[int, ...]:
        return [event async for event in engine.submit(asked(number))][-1].token_ids

    settings = {"dtype": "bf16", "deterministic": True}
    async with make_engine(model, **settings) as engine:
        assert (await engine.health()).deterministic
        alone = [await answer(engine, number) for number in range(8)]
        for number in range(8):
            await engine.drop(f"s{number}")
    async with make_engine(model, max_step_tokens=40, **settings) as engine:
        together = await asyncio.gather(*(answer(engine, number) for number in range(8)))
    assert alone == together
