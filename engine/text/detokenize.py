"""Token ids to text, a token at a time, without ever giving half a character or grapheme."""

from __future__ import annotations

import codecs
from typing import Protocol

import regex
from transformers import PreTrainedTokenizerBase

# The last grapheme may still grow (a combining mark, a joined emoji), but not without end.
MAX_HELD_CHARS = 64
_GRAPHEME = regex.compile(r"\X")
# Every character of a longest legal UTF-8 sequence may be a token of its own.
MAX_TOKENS_A_CHARACTER = 4


class Characters(Protocol):
    """Turns token ids into characters; what is not whole yet is held until `flush`."""

    @property
    def holds(self) -> bool:
        """Whether a part of a character is waiting for the rest."""
        ...

    def push(self, token: int) -> str: ...
    def flush(self) -> str: ...


class ByteLevelCharacters:
    """For byte-level BPE: each token stands for bytes, so UTF-8 itself says what is whole.

    Bytes that can begin no character become U+FFFD as soon as that is certain.
    """

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._token_bytes = token_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def holds(self) -> bool:
        return self._utf8.getstate()[0] != b""

    def push(self, token: int) -> str:
        return self._utf8.decode(self._token_bytes[token])

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class WindowCharacters:
    """For any other tokenizer: decodes the last few tokens in the company of those before.

    A space that a decoder puts between words depends on the neighbour, so a token is always
    decoded together with the ones that were given out last.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._given: list[int] = []
        self._held: list[int] = []

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def push(self, token: int) -> str:
        self._held.append(token)
        text = self._decode(self._given + self._held)
        unfinished = text.endswith("\N{REPLACEMENT CHARACTER}")
        if unfinished and len(self._held) < MAX_TOKENS_A_CHARACTER:
            return ""
        return self._give(text)

    def flush(self) -> str:
        return self._give(self._decode(self._given + self._held)) if self._held else ""

    def _give(self, text: str) -> str:
        before = self._decode(self._given) if self._given else ""
        self._given, self._held = self._held, []
        return text[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return decode(self._tokenizer, ids)


class TokenBytes:
    """The bytes of each token of a byte-level vocabulary; special tokens stand for none."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        alphabet = _byte_alphabet()
        added = {token: str(entry) for token, entry in tokenizer.added_tokens_decoder.items()}
        special = set(tokenizer.all_special_ids)
        special |= {t for t, e in tokenizer.added_tokens_decoder.items() if e.special}
        self._bytes: dict[int, bytes] = {}
        for text, token in tokenizer.get_vocab().items():
            if token in special:
                self._bytes[token] = b""
            elif token in added or any(letter not in alphabet for letter in text):
                self._bytes[token] = added.get(token, text).encode()
            else:
                self._bytes[token] = bytes(alphabet[letter] for letter in text)

    def __getitem__(self, token: int) -> bytes:
        # A model's output layer may be wider than its vocabulary.
        return self._bytes.get(token, b"")


class Detokenizer:
    """Makes a fresh `Characters` for each answer of one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._token_bytes = TokenBytes(tokenizer) if _is_byte_level(tokenizer) else None

    def characters(self) -> Characters:
        """Return the state of a new answer."""
        if self._token_bytes is not None:
            return ByteLevelCharacters(self._token_bytes)
        return WindowCharacters(self._tokenizer)

    def delivered(self, tokens: list[int], text: str) -> tuple[int, str]:
        """Find how many of an answer's `tokens` lie wholly within its delivered `text`.

        Returns that count and the rest of `text`, which ends inside the token after them.
        """
        characters = self.characters()
        whole, whole_chars, written = 0, 0, ""
        for index, token in enumerate(tokens, start=1):
            written += characters.push(token)
            if not text.startswith(written):
                break
            # A token whose bytes are still held belongs to the character that is coming.
            if not characters.holds:
                whole, whole_chars = index, len(written)
        return whole, text[whole_chars:]


def decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """Decode in full, as every streamed answer must add up to."""
    text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert isinstance(text, str)
    return text


def whole_graphemes(text: str) -> int:
    """Return how many characters of `text` surely belong to finished graphemes.

    `text` must begin where a grapheme begins: a flag's second half looks like another's first.
    """
    graphemes = _GRAPHEME.findall(text)
    if not graphemes or text.endswith("\n") or len(graphemes[-1]) >= MAX_HELD_CHARS:
        return len(text)
    return len(text) - len(graphemes[-1])


def _is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend is not None and type(backend.decoder).__name__ == "ByteLevel"


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins: the letter for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    letters.update({chr(256 + n): byte for n, byte in enumerate(others)})
    return letters
