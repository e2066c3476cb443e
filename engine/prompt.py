"""The conversation and what was seen, as the text and tokens that the model reads."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from transformers import PreTrainedTokenizerBase

from engine.api import Message, Seen
from engine.models.layout import Picture, Placed, Sound
from engine.sheet import sheet

# Short on purpose: the embedded model has 135 million parameters and follows few instructions.
SYSTEM = (
    "You assist doctors in a medical consultation. Answer the question briefly and precisely. "
    "Use only values from the lab results; say which are out of range."
)
BLIND = "You cannot see pictures."

# Tokens the model made for an earlier turn, and the rest of its delivered text that ends
# inside a token; None when the engine does not know the turn (any more).
Spoken = Callable[[str, str], "tuple[list[int], str] | None"]


class PromptTooLong(Exception):
    """The question with its lab rows does not fit in the context."""


@dataclass(frozen=True)
class Prompt:
    """What the model reads: `tokens` are those of `text`, earlier answers as they were made.

    `placed` are the pictures and recordings among the tokens, in order.
    """

    text: str
    tokens: list[int]
    seen: tuple[Seen, ...]
    placed: tuple[Placed, ...] = ()

    @property
    def shows(self) -> bool:
        """Whether pixels of any picture are in it."""
        return any(not isinstance(placed.picture, Sound) for placed in self.placed)


class Eyes(Protocol):
    """What the writer needs of a model that takes pixels (`engine.models.eyes.Eyes`)."""

    mark: str
    placeholders: frozenset[int]

    def render(self, chat: list[dict[str, object]], *, asks: bool) -> str: ...


@dataclass(frozen=True)
class _Utterance:
    """One message reduced to what is left of it when room is short."""

    message: Message
    pictures: Mapping[str, tuple[Picture, ...]]
    spoken: bool = True
    text_rows: bool = True

    def parts(self) -> list[str | Picture]:
        """The content: pictures first, then what was read and said."""
        shown = [p for seen in self.message.seen for p in self.pictures.get(seen.media, ())]
        return [*shown, *filter(None, [_user_content(self)])]


@dataclass
class _Said:
    """One message of the chat that the template gets."""

    role: str
    parts: list[str | Picture]

    @property
    def text(self) -> str:
        return "\n\n".join(part for part in self.parts if isinstance(part, str))


class PromptWriter:
    """Renders conversations for one tokenizer and its chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, eyes: Eyes | None = None) -> None:
        self._tokenizer = tokenizer
        self._eyes = eyes
        specials = {str(token) for token in tokenizer.all_special_tokens}
        specials |= {str(entry) for entry in tokenizer.added_tokens_decoder.values()}
        self._specials = sorted((s for s in specials if len(s) > 1), key=len, reverse=True)
        self._has_template = eyes is not None or bool(getattr(tokenizer, "chat_template", None))
        self._takes_system = True
        self._takes_system = self._has_template and self._renders_system()

    def write(
        self,
        messages: tuple[Message, ...],
        spoken: Spoken,
        limit: int,
        pictures: Mapping[str, tuple[Picture, ...]] | None = None,
    ) -> Prompt:
        """Render so that it fits in `limit` tokens; raises `PromptTooLong` when it cannot.

        `pictures` are given as pixels, by media id. Left out in this order, and said so in the
        prompt: the oldest utterances with their pixels, then lines of text from pictures and
        transcripts, then pixels. Lab rows and the question are never left out.
        """
        utterances = [_Utterance(message, pictures or {}) for message in messages]
        prompt = self._render(utterances, spoken)
        # Every round removes something, so there are at most three rounds a message.
        while len(prompt.tokens) > limit:
            shortened = _shorten(utterances, len(prompt.tokens) - limit)
            if shortened is None:
                raise PromptTooLong(f"{len(prompt.tokens)} tokens of {limit}")
            utterances = shortened
            prompt = self._render(utterances, spoken)
        return prompt

    def _render(self, utterances: list[_Utterance], spoken: Spoken) -> Prompt:
        answers: dict[str, tuple[list[int], str]] = {}
        chat = [_Said("system", [self._clean(_system(utterances, self._eyes is None))])]
        for utterance in utterances:
            message = utterance.message
            if message.role == "assistant":
                # An answer of which nothing was delivered leaves nothing to go on from.
                if not utterance.spoken or not message.text.strip():
                    continue
                known = spoken(message.turn, message.text) if message.turn else None
                content = self._clean(message.text)
                if known is not None:
                    # Replaced below by the tokens themselves.
                    content = f"answer-{uuid.uuid4().hex}"
                    answers[content] = known
                chat.append(_Said("assistant", [content]))
                continue
            parts = [p if isinstance(p, Picture) else self._clean(p) for p in utterance.parts()]
            if not parts:
                continue
            role = "user" if message.role == "user" else "system"
            if chat[-1].role == role:
                # Several people may speak before the model; most templates want them to alternate.
                chat[-1].parts += parts
            else:
                chat.append(_Said(role, parts))
        continues = chat[-1].role == "assistant"
        text = self._template(chat, continues)
        pictures = [part for said in chat for part in said.parts if isinstance(part, Picture)]
        prompt = self._tokenize(text, answers, pictures)
        return dataclasses.replace(
            prompt, seen=tuple(s for u in utterances for s in u.message.seen)
        )

    def _tokenize(
        self, text: str, answers: dict[str, tuple[list[int], str]], pictures: list[Picture]
    ) -> Prompt:
        tokens: list[int] = []
        parts: list[str] = []
        placed: list[Placed] = []
        waiting = iter(pictures)

        def read(between: str) -> None:
            for token in self._encode(between):
                if self._eyes is None or token not in self._eyes.placeholders:
                    tokens.append(token)
                    continue
                picture = next(waiting)
                placed.append(Placed(len(tokens), picture))
                tokens.extend(picture.tokens)

        for mark, (made, rest) in answers.items():
            before, _, text = text.partition(mark)
            read(before)
            tokens += made
            tokens += self._encode(rest)
            parts += [before, self._decode(made) + rest]
        parts.append(text)
        read(text)
        return Prompt("".join(parts), tokens, (), tuple(placed))

    def _template(self, chat: list[_Said], continues: bool) -> str:
        if not self._takes_system and len(chat) > 1 and chat[1].role == "user":
            chat = [_Said("user", chat[0].parts + chat[1].parts), *chat[2:]]
        if not self._has_template:
            lines = [f"{said.role}: {said.text}" for said in chat]
            return "\n".join(lines if continues else [*lines, "assistant:"])
        if self._eyes is not None:
            text = self._eyes.render([_shown(said) for said in chat], asks=not continues)
        else:
            made = self._tokenizer.apply_chat_template(
                [{"role": said.role, "content": said.text} for said in chat],
                tokenize=False,
                add_generation_prompt=not continues,
            )
            assert isinstance(made, str)
            text = made
        if continues:
            # The answer goes on where it stopped, so what the template puts behind it is cut.
            content = chat[-1].text
            text = text[: text.rindex(content) + len(content)]
        return text

    def _renders_system(self) -> bool:
        probe = [_Said("system", ["probe"]), _Said("user", ["x"])]
        # Templates of models without a system role raise from inside Jinja.
        from jinja2 import TemplateError

        try:
            return "probe" in self._template(probe, continues=False)
        except TemplateError:
            return False

    def _clean(self, text: str) -> str:
        """Keep people's text from being read as the template's own marks."""
        for special in self._specials:
            if special in text:
                text = text.replace(special, f"{special[0]} {special[1:]}")
        return text.strip()

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False) if text else []
        return ids

    def _decode(self, ids: list[int]) -> str:
        text = self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text


def _shorten(utterances: list[_Utterance], excess: int) -> list[_Utterance] | None:
    """Leave out about `excess` tokens more; None when nothing may be left out."""
    shorter = list(utterances)
    # A token is seldom longer than this, so a round does not take out more than is needed.
    chars = excess * 3
    for index, utterance in enumerate(shorter[:-1]):
        # An answer goes with its question.
        if chars <= 0 and utterance.message.role != "assistant":
            break
        if utterance.spoken:
            shorter[index] = dataclasses.replace(utterance, spoken=False, pictures={})
            chars -= len(utterance.message.text) + 3 * _picture_tokens(utterance)
    for index, utterance in enumerate(shorter):
        if chars <= 0:
            break
        if utterance.text_rows and (texts := _texts(utterance)):
            shorter[index] = dataclasses.replace(utterance, text_rows=False)
            chars -= sum(len(text) for text in texts)
    for index, utterance in enumerate(shorter):
        if chars <= 0:
            break
        if _picture_tokens(utterance):
            shorter[index] = dataclasses.replace(utterance, pictures={})
            chars -= 3 * _picture_tokens(utterance)
    return None if shorter == utterances else shorter


def _picture_tokens(utterance: _Utterance) -> int:
    shown = (utterance.pictures.get(seen.media, ()) for seen in utterance.message.seen)
    return sum(len(picture.tokens) for pictures in shown for picture in pictures)


def _shown(said: _Said) -> dict[str, object]:
    """One message as templates of models with eyes take it."""
    shown: list[dict[str, str]] = [
        {"type": "audio" if isinstance(part, Sound) else "image"}
        for part in said.parts
        if isinstance(part, Picture)
    ]
    return {"role": said.role, "content": [*shown, {"type": "text", "text": said.text}]}


def _texts(utterance: _Utterance) -> list[str]:
    """What may be left out: text that was heard, or read from pictures that are not shown."""
    unheard = [s for s in utterance.message.seen if not _given(utterance, s)[1]]
    told = [said.text for seen in unheard for said in seen.speech]
    unseen = [seen for seen in utterance.message.seen if seen.media not in utterance.pictures]
    return told + [row.text for seen in unseen for row in seen.text_rows]


def _system(utterances: list[_Utterance], is_blind: bool) -> str:
    system = f"{SYSTEM} {BLIND}" if is_blind else SYSTEM
    left_out = sum(not utterance.spoken for utterance in utterances)
    if not left_out:
        return system
    return f"{system} The oldest {left_out} messages of the conversation are left out."


def _user_content(utterance: _Utterance) -> str:
    message = utterance.message
    blocks = [sheet(seen, utterance.text_rows, *_given(utterance, seen)) for seen in message.seen]
    if utterance.spoken and message.text.strip():
        speaker = f"{message.speaker} asks: " if message.speaker else ""
        blocks.append(f"{speaker}{message.text.strip()}")
    return "\n\n".join(block for block in blocks if block)


def _given(utterance: _Utterance, seen: Seen) -> tuple[bool, bool]:
    """Whether the model sees a media item itself, and whether it hears it."""
    given = utterance.pictures.get(seen.media, ())
    sounds = sum(isinstance(part, Sound) for part in given)
    return len(given) > sounds, sounds > 0
