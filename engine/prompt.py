"""The conversation and what was seen, as the text and tokens that the model reads."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase

from engine.api import Imaging, LabRow, Message, Seen
from engine.text.spans import covers

# Short on purpose: the embedded model has 135 million parameters and follows few instructions.
SYSTEM = (
    "You assist doctors in a medical consultation. Answer the question briefly and precisely. "
    "Use only values from the lab results; say which are out of range. You cannot see pictures."
)

# Rows that matter first, each a sentence: of a table with a column of flags the embedded model
# called every value high.
_SECTIONS = (
    ("Out of range:", ("low", "high", "abnormal")),
    ("Normal:", ("normal",)),
    ("No range to compare with:", ("unknown",)),
)

# Tokens the model made for an earlier turn, and the rest of its delivered text that ends
# inside a token; None when the engine does not know the turn (any more).
Spoken = Callable[[str, str], "tuple[list[int], str] | None"]


class PromptTooLong(Exception):
    """The question with its lab rows does not fit in the context."""


@dataclass(frozen=True)
class Prompt:
    """What the model reads: `tokens` are those of `text`, earlier answers as they were made."""

    text: str
    tokens: list[int]
    seen: tuple[Seen, ...]


@dataclass(frozen=True)
class _Utterance:
    """One message reduced to what is left of it when room is short."""

    message: Message
    spoken: bool = True
    text_rows: bool = True


class PromptWriter:
    """Renders conversations for one tokenizer and its chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        specials = {str(token) for token in tokenizer.all_special_tokens}
        specials |= {str(entry) for entry in tokenizer.added_tokens_decoder.values()}
        self._specials = sorted((s for s in specials if len(s) > 1), key=len, reverse=True)
        self._has_template = bool(getattr(tokenizer, "chat_template", None))
        self._takes_system = self._has_template and self._renders_system()

    def write(self, messages: tuple[Message, ...], spoken: Spoken, limit: int) -> Prompt:
        """Render so that it fits in `limit` tokens; raises `PromptTooLong` when it cannot.

        Left out in this order, and said so in the prompt: the oldest utterances, then lines of
        text from pictures and transcripts. Lab rows and the question are never left out.
        """
        utterances = [_Utterance(message) for message in messages]
        prompt = self._render(utterances, spoken)
        # Every round removes something, so there are at most two rounds a message.
        while len(prompt.tokens) > limit:
            shortened = _shorten(utterances, len(prompt.tokens) - limit)
            if shortened is None:
                raise PromptTooLong(f"{len(prompt.tokens)} tokens of {limit}")
            utterances = shortened
            prompt = self._render(utterances, spoken)
        return prompt

    def _render(self, utterances: list[_Utterance], spoken: Spoken) -> Prompt:
        answers: dict[str, tuple[list[int], str]] = {}
        chat = [{"role": "system", "content": self._clean(_system(utterances))}]
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
                chat.append({"role": "assistant", "content": content})
                continue
            content = self._clean(_user_content(utterance))
            if not content:
                continue
            role = "user" if message.role == "user" else "system"
            if chat[-1]["role"] == role:
                # Several people may speak before the model; most templates want them to alternate.
                chat[-1]["content"] += "\n\n" + content
            else:
                chat.append({"role": role, "content": content})
        continues = chat[-1]["role"] == "assistant"
        text = self._template(chat, continues)
        seen = tuple(s for u in utterances for s in u.message.seen)
        return self._tokenize(text, answers, seen)

    def _tokenize(
        self, text: str, answers: dict[str, tuple[list[int], str]], seen: tuple[Seen, ...]
    ) -> Prompt:
        tokens: list[int] = []
        parts: list[str] = []
        for mark, (made, rest) in answers.items():
            before, _, text = text.partition(mark)
            tokens += self._encode(before)
            tokens += made
            if rest:
                tokens += self._encode(rest)
            parts += [before, self._decode(made) + rest]
        parts.append(text)
        return Prompt("".join(parts), tokens + self._encode(text), seen)

    def _template(self, chat: list[dict[str, str]], continues: bool) -> str:
        if not self._takes_system and len(chat) > 1 and chat[1]["role"] == "user":
            first = {"role": "user", "content": f"{chat[0]['content']}\n\n{chat[1]['content']}"}
            chat = [first, *chat[2:]]
        if not self._has_template:
            lines = [f"{turn['role']}: {turn['content']}" for turn in chat]
            return "\n".join(lines if continues else [*lines, "assistant:"])
        text = self._tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=not continues
        )
        assert isinstance(text, str)
        if continues:
            # The answer goes on where it stopped, so what the template puts behind it is cut.
            content = chat[-1]["content"]
            text = text[: text.rindex(content) + len(content)]
        return text

    def _renders_system(self) -> bool:
        probe = [{"role": "system", "content": "probe"}, {"role": "user", "content": "x"}]
        # Templates of models without a system role raise from inside Jinja.
        from jinja2 import TemplateError

        try:
            return "probe" in self._tokenizer.apply_chat_template(probe, tokenize=False)
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
            shorter[index] = replace(utterance, spoken=False)
            chars -= len(utterance.message.text)
    for index, utterance in enumerate(shorter):
        if chars <= 0:
            break
        if utterance.text_rows and any(_texts(seen) for seen in utterance.message.seen):
            shorter[index] = replace(utterance, text_rows=False)
            chars -= sum(len(text) for seen in utterance.message.seen for text in _texts(seen))
    return None if shorter == utterances else shorter


def _texts(seen: Seen) -> list[str]:
    return [row.text for row in seen.text_rows] + [said.text for said in seen.speech]


def _system(utterances: list[_Utterance]) -> str:
    left_out = sum(not utterance.spoken for utterance in utterances)
    if not left_out:
        return SYSTEM
    return f"{SYSTEM} The oldest {left_out} messages of the conversation are left out."


def _user_content(utterance: _Utterance) -> str:
    message = utterance.message
    blocks = [_sheet(seen, utterance.text_rows) for seen in message.seen]
    if utterance.spoken and message.text.strip():
        speaker = f"{message.speaker} asks: " if message.speaker else ""
        blocks.append(f"{speaker}{message.text.strip()}")
    return "\n\n".join(block for block in blocks if block)


def _sheet(seen: Seen, with_text: bool) -> str:
    name = " ".join(seen.name.split()) or "picture"
    lines: list[str] = []
    if seen.speech and with_text:
        lines.append(f"Transcript of {name}:")
        lines += [" ".join(said.text.split()) for said in seen.speech]
    elif seen.speech:
        lines.append(f"The transcript of {name} is left out.")
    boxes = [row.box for row in seen.lab_rows]
    free = [row for row in seen.text_rows if not any(covers(box, row.box) for box in boxes)]
    if free and with_text:
        lines.append(f"Text read from {name}:")
        lines += [" ".join(row.text.split()) for row in free]
    elif free:
        lines.append(f"{len(free)} lines of text read from {name} are left out.")
    # Right before the question: with other text in between the embedded model answered from
    # that, and called a sheet with four values out of range normal.
    if seen.lab_rows:
        lines += ["", f"Lab results from {name}."]
        for title, flags in _SECTIONS:
            rows = [row for row in seen.lab_rows if row.flag in flags]
            lines += [title, *(_lab_line(row) for row in rows)] if rows else []
        if all(row.flag == "normal" for row in seen.lab_rows):
            lines.append("Out of range: none.")
    if seen.imaging is not None:
        lines.append(f"Medical image {name}: {', '.join(_imaging_parts(seen, seen.imaging))}.")
    if seen.missing:
        lines.append(f"{name} was not read to its end.")
    if not lines and seen.media_type.startswith("audio/"):
        lines.append(f"Recording {name}: no speech was found in it.")
    if not lines:
        lines.append(f"Picture {name} ({seen.width}x{seen.height}): no text was found in it.")
    return "\n".join(lines).strip()


def _imaging_parts(seen: Seen, told: Imaging) -> list[str]:
    """What was recorded and how; identities never come as far as here."""
    words = [told.modality, told.body_part.lower(), told.laterality, told.view]
    parts = [word for word in words if word]
    if seen.frames > 1:
        parts.append(f"{seen.frames} frames")
    parts.append(f"{seen.width}x{seen.height} pixels")
    if told.pixel_spacing is not None:
        rows, columns = told.pixel_spacing
        parts.append(f"pixel spacing {rows:g} x {columns:g} mm")
    if told.window_center is not None and told.window_width is not None:
        parts.append(f"window center {told.window_center:g} width {told.window_width:g}")
    return parts


def _lab_line(row: LabRow) -> str:
    analyte, value, unit, limits = (
        " ".join(cell.split()) for cell in (row.analyte, row.value, row.unit, row.range)
    )
    told = f"is {row.flag}" if row.flag != "unknown" else "cannot be judged"
    reading = " ".join(part for part in (analyte, value, unit) if part)
    return f"- {reading} {told}" + (f" (range {limits})" if limits else "")
