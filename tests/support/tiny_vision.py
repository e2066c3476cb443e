"""Tiny image-text models with random weights and the real processors, as folders to load."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForImageTextToText,
    Gemma4Config,
    Idefics3Config,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5OmniThinkerConfig,
    Qwen3_5Config,
    Qwen3VLConfig,
    SmolVLMConfig,
    WhisperFeatureExtractor,
)
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

# Gemma 4 twice: pictures whose tokens see each other, and layers that share and have embeddings.
FAMILIES = (
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_5",
    "qwen2_5_omni",
    "smolvlm",
    "idefics3",
    "gemma4",
    "gemma4_shared",
)

# Where the first one tried made a near tie in some test.
SEEDS = {"qwen2_5_omni": 12}

_QWEN_MARKS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
_SMOL_MARKS = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"] + [
    f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)
]
_OMNI_MARKS = {
    "image_token": "<|IMAGE|>",
    "video_token": "<|VIDEO|>",
    "audio_token": "<|AUDIO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}
_GEMMA_MARKS = {
    "image_token": "<|image|>",
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "audio_token": "<|audio|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
    "video_token": "<|video|>",
}
_NAMED_MARKS = {
    "qwen2_5_omni": _OMNI_MARKS,
    "gemma4": _GEMMA_MARKS,
    "gemma4_shared": _GEMMA_MARKS,
}
_CORPUS = [
    "The fasting glucose of the patient is 11.2 mmol/L and out of range.",
    "Which values are high? Sodium is normal, potassium is low. Look at the picture.",
]
_QWEN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for p in m['content'] %}"
    "{% if p['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ p['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_OMNI_TEMPLATE = (
    _QWEN_TEMPLATE.replace("image_pad", "IMAGE")
    .replace("vision_start", "vision_bos")
    .replace("vision_end", "vision_eos")
    .replace(
        "{% else %}",
        "{% elif p['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>{% else %}",
    )
)
_SMOL_TEMPLATE = (
    "<|im_start|>{% for m in messages %}{{ m['role'] | capitalize }}:"
    "{% for p in m['content'] %}{% if p['type'] == 'image' %}<image>"
    "{% else %}{{ p['text'] }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
_GEMMA_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for p in m['content'] %}"
    "{% if p['type'] == 'image' %}<|image|>"
    "{% else %}{{ p['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
    "bos_token_id": None,
    "pad_token_id": 0,
}
_SUMS = {
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_MROPE = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}


def tiny_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE of a few hundred tokens with the family's marks and template."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", *_marks(family)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        unk_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=_NAMED_MARKS.get(family, {}),
    )
    templates = {"qwen2_5_omni": _OMNI_TEMPLATE, "smolvlm": _SMOL_TEMPLATE}
    templates |= {"idefics3": _SMOL_TEMPLATE, "gemma4": _GEMMA_TEMPLATE}
    templates["gemma4_shared"] = _GEMMA_TEMPLATE
    tokenizer.chat_template = templates.get(family, _QWEN_TEMPLATE)
    return tokenizer


def tiny_vision_model(family: str, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A random model whose choices are far from ties, and in which every picture token counts."""
    torch.manual_seed(SEEDS.get(family, 11))
    model = AutoModelForImageTextToText.from_config(_config(family, tokenizer))
    with torch.no_grad():
        model.lm_head.weight.mul_(16)
        # What ends an answer early or is no text is never chosen.
        model.lm_head.weight[: 3 + len(_marks(family))] = 0
        # Bytes that are no characters would make answers whose text is not all of their tokens.
        for token in range(len(tokenizer)):
            if not tokenizer.decode([token]).isascii():
                model.lm_head.weight[token] = 0
        for name, weight in model.named_parameters():
            # At the scale of the text's embeddings, so that pixels matter.
            if any(part in name for part in ("visual", "vision", "connector", "audio")):
                weight.mul_(1 if weight.ndim < 2 else 4)
            # States that forget within a few tokens would hide that one of them is wrong.
            if name.endswith("A_log"):
                weight.fill_(math.log(0.02))
    return model.eval()


def save_tiny_vision(family: str, folder: Path) -> Path:
    """Write such a model with its tokenizer and picture processor; returns the folder."""
    tokenizer = tiny_tokenizer(family)
    tiny_vision_model(family, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _image_processor(family).save_pretrained(folder)
    if family == "qwen2_5_omni":
        settings = json.loads((folder / "preprocessor_config.json").read_text())
        settings |= WhisperFeatureExtractor(feature_size=16, chunk_length=4).to_dict()
        (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    if family in ("smolvlm", "idefics3"):
        (folder / "processor_config.json").write_text(json.dumps({"image_seq_len": 16}))
    return folder


def _marks(family: str) -> list[str]:
    if named := _NAMED_MARKS.get(family):
        return list(named.values())
    return _QWEN_MARKS if family.startswith("qwen") else _SMOL_MARKS


def _image_processor(family: str) -> Any:
    if family in ("qwen2_5_vl", "qwen2_5_omni"):
        return Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=28 * 28 * 48)
    if family in ("qwen3_vl", "qwen3_5"):
        pixels = {"min_pixels": 64 * 64, "max_pixels": 32 * 32 * 48}
        return Qwen2VLImageProcessorPil(patch_size=16, **pixels)
    if family.startswith("gemma4"):
        return Gemma4ImageProcessorPil(max_soft_tokens=70, patch_size=8)
    kind = SmolVLMImageProcessorPil if family == "smolvlm" else Idefics3ImageProcessorPil
    return kind(
        size={"longest_edge": 128}, max_image_size={"longest_edge": 64}, do_image_splitting=True
    )


def _config(family: str, tokenizer: PreTrainedTokenizerFast) -> Any:
    ids = tokenizer.convert_tokens_to_ids
    text = {**_TEXT, "vocab_size": len(tokenizer)}
    if family == "qwen2_5_omni":
        return _omni(text, ids)
    if family.startswith("qwen"):
        shared = {
            "image_token_id": ids("<|image_pad|>"),
            "video_token_id": ids("<|video_pad|>"),
            "vision_start_token_id": ids("<|vision_start|>"),
            "vision_end_token_id": ids("<|vision_end|>"),
            "tie_word_embeddings": False,
        }
        text["rope_parameters"] = _MROPE
        vision = {"depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2}
        vision |= {"out_hidden_size": 64, "initializer_range": 0.2}
        if family == "qwen2_5_vl":
            vision |= {"window_size": 56, "fullatt_block_indexes": [1]}
            return Qwen2_5_VLConfig(text_config=text, vision_config=vision, **shared)
        vision |= {"num_position_embeddings": 64}
        text["rope_parameters"] = {**_MROPE, "mrope_interleaved": True}
        if family == "qwen3_5":
            text["rope_parameters"]["partial_rotary_factor"] = 1.0
            return Qwen3_5Config(text_config=text | _SUMS, vision_config=vision, **shared)
        vision |= {"deepstack_visual_indexes": [0, 1]}
        return Qwen3VLConfig(text_config=text, vision_config=vision, **shared)
    if family.startswith("gemma4"):
        return _gemma(family, text, ids)
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 64,
        "patch_size": 8,
        "initializer_range": 0.2,
    }
    kind = SmolVLMConfig if family == "smolvlm" else Idefics3Config
    return kind(
        text_config={"model_type": "llama", **text},
        vision_config=vision,
        scale_factor=2,
        image_token_id=ids("<image>"),
        tie_word_embeddings=False,
        pad_token_id=0,
    )


def _gemma(family: str, text: dict[str, Any], ids: Any) -> Gemma4Config:
    text |= {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "sliding_window": 24,
        "global_head_dim": 32,
    }
    if family == "gemma4":
        text |= {"use_bidirectional_attention": "vision", "hidden_size_per_layer_input": 0}
        text |= {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
    else:
        text |= {"num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8}
        text |= {"vocab_size_per_layer_input": text["vocab_size"]}
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "patch_size": 8,
        "position_embedding_size": 128,
        "initializer_range": 0.2,
    }
    marks = {
        "boi_token_id": "<|image>",
        "eoi_token_id": "<image|>",
        "image_token_id": "<|image|>",
        "video_token_id": "<|video|>",
        "boa_token_id": "<|audio>",
        "eoa_token_index": "<audio|>",
        "audio_token_id": "<|audio|>",
    }
    return Gemma4Config(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=False,
        **{name: ids(mark) for name, mark in marks.items()},
    )


def _omni(text: dict[str, Any], ids: Any) -> Qwen2_5OmniThinkerConfig:
    text |= {"rope_parameters": _MROPE}
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": 64,
        "window_size": 56,
        "fullatt_block_indexes": [1],
        "initializer_range": 0.2,
    }
    audio = {
        "num_mel_bins": 16,
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "d_model": 32,
        "n_window": 20,
        "output_dim": 64,
        "max_source_positions": 64,
        "initializer_range": 0.2,
    }
    return Qwen2_5OmniThinkerConfig(
        text_config=text,
        vision_config=vision,
        audio_config=audio,
        image_token_index=ids("<|IMAGE|>"),
        video_token_index=ids("<|VIDEO|>"),
        audio_token_index=ids("<|AUDIO|>"),
        vision_start_token_id=ids("<|vision_bos|>"),
        vision_end_token_id=ids("<|vision_eos|>"),
        audio_start_token_id=ids("<|audio_bos|>"),
        audio_end_token_id=ids("<|audio_eos|>"),
        tie_word_embeddings=False,
    )
