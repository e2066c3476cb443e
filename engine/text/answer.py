"""One answer on its way out: tokens in, deltas with spans and annotations out."""

from __future__ import annotations

from collections.abc import Iterable

from engine.api import Seen, TurnAnnotation, TurnDelta
from engine.text.detokenize import Characters, whole_graphemes
from engine.text.spans import SpanFinder
from engine.text.stop import StopMatcher


class AnswerText:
    """Gathers what tokens add until it is taken; never gives half a grapheme or a stop string.

    The deltas of an answer joined are its text; their offsets strictly rise.
    """

    def __init__(
        self, turn: str, characters: Characters, stops: tuple[str, ...], seen: Iterable[Seen]
    ) -> None:
        self.text = ""
        self._turn = turn
        self._characters = characters
        self._stops = StopMatcher(stops)
        self._spans = SpanFinder(seen)
        self._ready = ""

    @property
    def stopped(self) -> bool:
        """Whether a stop string was reached: no further token belongs to the answer."""
        return self._stops.stopped

    def push(self, token: int) -> None:
        """Add a token the model made."""
        self._ready += self._stops.push(self._characters.push(token))

    def take(self, *, final: bool = False) -> list[TurnDelta | TurnAnnotation]:
        """Return what can be shown now; `final` gives all that was held."""
        if final and not self.stopped:
            self._ready += self._stops.push(self._characters.flush())
        return self.cut() if final else self._show(whole_graphemes(self._ready), final=False)

    def cut(self) -> list[TurnDelta | TurnAnnotation]:
        """Return what was held of an answer that was cut off, without half a character."""
        self._ready += self._stops.flush()
        return self._show(len(self._ready), final=True)

    def _show(self, whole: int, *, final: bool) -> list[TurnDelta | TurnAnnotation]:
        shown, self._ready = self._ready[:whole], self._ready[whole:]
        spans, links = self._spans.push(shown, final=final)
        events: list[TurnDelta | TurnAnnotation] = []
        # At the end spans may become certain without new text: an empty delta carries them.
        if shown or spans:
            events.append(
                TurnDelta(turn=self._turn, offset=len(self.text), text=shown, spans=tuple(spans))
            )
        events += [
            TurnAnnotation(
                turn=self._turn,
                start=link.start,
                end=link.end,
                media=link.target.media,
                observation=link.target.observation,
                box=link.box,
            )
            for link in links
        ]
        self.text += shown
        return events
