"""A turn's prompt: what its session knows and its pictures, written and laid out for the model."""

from __future__ import annotations

from engine.models.layout import Layout, runs
from engine.models.loaded import LoadedModel
from engine.prompt import Prompt
from engine.sequence import Sequence, Session

# An answer gets at least what was asked for, but never more than this part of the context.
ANSWER_SHARE = 4


class Prompter:
    """Writes prompts that leave room for an answer in `max_context` tokens."""

    def __init__(self, model: LoadedModel, max_context: int) -> None:
        self._model = model
        self._max_context = max_context

    def write(self, sequence: Sequence, session: Session) -> Prompt:
        """Render a turn whose pictures are ready; raises `PromptTooLong`."""
        turn = sequence.turn

        def spoken(answer: str, text: str) -> tuple[list[int], str] | None:
            tokens = session.answers.get(answer)
            if tokens is None:
                return None
            whole, rest = self._model.detokenizer.delivered(tokens, text)
            return tokens[:whole], rest

        room = min(turn.max_new_tokens, self._max_context // ANSWER_SHARE)
        limit = self._max_context - room
        return self._model.writer.write(turn.messages, spoken, limit, sequence.pictures)

    def layout(self, prompt: Prompt) -> Layout:
        """Say where the prompt's tokens stand; computed for each turn from all of its pictures."""
        if self._model.eyes is None:
            return Layout()
        pictures = [placed.picture for placed in prompt.placed]
        positions, delta = self._model.eyes.positions(prompt.tokens, pictures)
        blocks = runs(prompt.placed) if self._model.eyes.sees_whole else ()
        return Layout(prompt.placed, positions, delta, blocks)
