"""Answers that are JSON of a given schema: which tokens may come next, by `llguidance`."""

from __future__ import annotations

import threading

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

MAX_SCHEMA_CHARS = 64 * 1024
MAX_REASON_CHARS = 200


class BadSchema(ValueError):
    """The schema is none, or asks for what cannot be guaranteed; `str` is a sentence."""


class Guide:
    """Where one answer is in its grammar. Not thread-safe: only the loop calls it."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher
        self._mask = allocate_token_bitmask(1, vocabulary)

    def allow(self, logits: torch.Tensor) -> torch.Tensor:
        """Return `logits` [vocabulary] with -inf for every token that must not come next."""
        fill_next_token_bitmask(self._matcher, self._mask)
        bits = np.unpackbits(self._mask.view(np.uint8), bitorder="little")
        allowed = torch.zeros(logits.shape[0], dtype=torch.bool)
        known = min(len(bits), len(allowed))
        allowed[:known] = torch.from_numpy(bits[:known].astype(bool))
        if self._matcher.is_error() or not allowed.any():
            raise RuntimeError("the grammar of a schema lost its way")
        return logits.masked_fill(~allowed.to(logits.device), -torch.inf)

    def accept(self, token: int) -> bool:
        """Take the chosen token; True when the JSON is complete."""
        self._matcher.consume_token(token)
        return self._matcher.is_stopped()


class Guides:
    """Makes guides for one tokenizer; may be called from any thread."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, end_tokens: frozenset[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._end_tokens = sorted(end_tokens)
        self._lock = threading.Lock()
        self._known: LLTokenizer | None = None

    def compile(self, schema: str) -> Guide:
        """Return a guide at the beginning of an answer; may take a second. Raises `BadSchema`."""
        if len(schema) > MAX_SCHEMA_CHARS:
            raise BadSchema(f"A schema may have {MAX_SCHEMA_CHARS} characters.")
        if not isinstance(self._tokenizer, PreTrainedTokenizerFast) or not self._end_tokens:
            raise BadSchema("The loaded model's tokenizer cannot be guided by a schema.")
        try:
            grammar = LLMatcher.grammar_from_json_schema(schema)
        except (ValueError, RecursionError) as error:
            raise BadSchema(f"The schema is not JSON: {_short(error)}.") from None
        matcher = LLMatcher(self._tokens(self._tokenizer), grammar, log_level=0)
        if matcher.is_error():
            raise BadSchema(f"The schema cannot be used: {_short(matcher.get_error())}.")
        return Guide(matcher, self._vocabulary)

    def _tokens(self, tokenizer: PreTrainedTokenizerFast) -> LLTokenizer:
        # Takes a second and some memory, so it is made when the first schema comes.
        with self._lock:
            if self._known is None:
                self._known = from_tokenizer(
                    tokenizer, n_vocab=self._vocabulary, eos_token=self._end_tokens
                )
            return self._known


def _short(error: object) -> str:
    return " ".join(str(error).split())[:MAX_REASON_CHARS].rstrip(".")
