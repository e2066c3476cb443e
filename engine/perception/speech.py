"""Speech in 16 kHz samples: where somebody speaks, and what is said there.

One recogniser serves every recording and microphone: the weights are shared, and what belongs to
one item is a few hundred numbers, because the samples themselves lie in a file.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from engine.api import Speech
from engine.perception.sound import BYTES_A_SAMPLE, RATE
from engine.perception.wire import Answer, Finished, Listen, Listened

if TYPE_CHECKING:
    import numpy as np

WINDOW = 512
_CONTEXT = 64

# The detector's chance of speech that begins an utterance, and the one that keeps it going.
_BEGINS = 0.5
_GOES_ON = 0.35
_SILENCE = int(0.6 * RATE)
# An onset is certain only some windows after it was spoken.
_PRE_ROLL = int(0.3 * RATE)
_POST_ROLL = int(0.2 * RATE)
# A click or a cough.
_SHORTEST = int(0.2 * RATE)
# The recogniser's own window is 30 s.
_LONGEST = 28 * RATE

# What the recogniser writes where it hears nothing is fluent and wrong.
_NO_SPEECH = 0.6
_DOUBTFUL = -0.7
_HOPELESS = -1.5

_MAX_ITEMS = 64


class Segmenter:
    """Cuts a recording into utterances from the chance of speech in each window: pure."""

    def __init__(self, start: int) -> None:
        self.at = start
        self._free = start
        self._began: int | None = None
        self._quiet = 0
        self._spoken = 0
        self._lowest = (2.0, 0)

    @property
    def settled(self) -> int:
        """The first sample that an utterance to come may begin with."""
        if self._began is not None:
            return self._began
        return max(self._free, self.at - _PRE_ROLL)

    def take(self, chance: float) -> tuple[int, int] | None:
        """Take the next window; return the utterance that it ends, as samples `[start, stop)`."""
        at = self.at
        self.at += WINDOW
        if self._began is None:
            if chance >= _BEGINS:
                self._begin(max(self._free, at - _PRE_ROLL))
            return None
        if chance >= _GOES_ON:
            self._quiet = 0
            self._spoken += WINDOW
        else:
            self._quiet += WINDOW
        if self._quiet >= _SILENCE:
            return self._cut(self.at - self._quiet + _POST_ROLL)
        if at - self._began > _LONGEST // 2 and chance <= self._lowest[0]:
            self._lowest = (chance, self.at)
        if self.at - self._began >= _LONGEST:
            where = self._lowest[1]
            whole = self._cut(where)
            # Still speaking: the rest begins where this was cut.
            self._begin(where)
            self._spoken = self.at - where
            return whole
        return None

    def finish(self) -> tuple[int, int] | None:
        """Return what is still being said at the end."""
        return None if self._began is None else self._cut(self.at)

    def _begin(self, start: int) -> None:
        self._began, self._spoken, self._quiet = start, WINDOW, 0
        self._lowest = (2.0, 0)

    def _cut(self, stop: int) -> tuple[int, int] | None:
        assert self._began is not None
        began, self._began, self._free = self._began, None, stop
        return (began, stop) if self._spoken >= _SHORTEST else None


class _Ear:
    """What is known of one item: where it is, and the detector's memory."""

    def __init__(self, start: int) -> None:
        import numpy as np

        self.segmenter = Segmenter(start)
        self.context = np.zeros(_CONTEXT, "float32")
        self.h = np.zeros((1, 1, 128), "float32")
        self.c = np.zeros((1, 1, 128), "float32")


class Recogniser:
    """Listens to many items, each a piece at a time."""

    def __init__(self, folder: str, threads: int) -> None:
        from faster_whisper import WhisperModel
        from faster_whisper.vad import get_vad_model

        self._detector = get_vad_model().session
        self._model = WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=threads)
        self._language = None if self._model.model.is_multilingual else "en"
        self._ears: OrderedDict[str, _Ear] = OrderedDict()

    def listen(self, request: Listen) -> Iterator[Answer]:
        """Answer one request; the ids of utterances count them."""
        media, count = request.media, request.utterances
        ear = self._ears.pop(media, None)
        start = request.start
        if ear is None or ear.segmenter.at != start:
            start = request.settled
            ear = _Ear(start)
        stop = request.stop
        if not request.is_last:
            stop -= (stop - start) % WINDOW
        utterances = self._utterances(ear, _read(request.samples, start, stop))
        for start, end in (*utterances, *self._last(ear, request)):
            text = self._write_down(_read(request.samples, start, min(end, request.stop)))
            if text:
                count += 1
                yield Speech(
                    media=media,
                    id=f"{media}.speech.{count}",
                    start_s=start / RATE,
                    end_s=min(end, request.stop) / RATE,
                    text=text,
                )
        if not request.is_last:
            self._ears[media] = ear
            if len(self._ears) > _MAX_ITEMS:
                self._ears.popitem(last=False)
        yield Listened(position=ear.segmenter.at, settled=ear.segmenter.settled)
        yield Finished(timings={})

    def _utterances(self, ear: _Ear, samples: np.ndarray) -> list[tuple[int, int]]:
        found = (ear.segmenter.take(chance) for chance in self._chances(ear, samples))
        return [utterance for utterance in found if utterance is not None]

    def _last(self, ear: _Ear, request: Listen) -> list[tuple[int, int]]:
        ending = ear.segmenter.finish() if request.is_last else None
        return [] if ending is None else [ending]

    def _chances(self, ear: _Ear, samples: np.ndarray) -> list[float]:
        import numpy as np

        if not len(samples):
            return []
        sound = samples.astype("float32") / 32768.0
        sound = np.pad(sound, (0, -len(sound) % WINDOW))
        windows = sound.reshape(-1, WINDOW)
        before = np.vstack([ear.context, windows[:-1, -_CONTEXT:]])
        ear.context = windows[-1, -_CONTEXT:].copy()
        chances, ear.h, ear.c = self._detector.run(
            None, {"input": np.hstack([before, windows]), "h": ear.h, "c": ear.c}
        )
        return [float(chance) for chance in np.ravel(chances)]

    def _write_down(self, samples: np.ndarray) -> str:
        """Return what is said, empty when it is nothing that can be told with any certainty."""
        segments, _ = self._model.transcribe(
            samples.astype("float32") / 32768.0,
            language=self._language,
            # Without this a sentence once heard is repeated into the silence behind it.
            condition_on_previous_text=False,
            without_timestamps=True,
            no_speech_threshold=_NO_SPEECH,
        )
        texts = [segment.text.strip() for segment in segments if _is_certain(segment)]
        return without_repeats(" ".join(text for text in texts if text))


def _is_certain(segment: Any) -> bool:
    if segment.avg_logprob < _HOPELESS:
        return False
    return not (segment.no_speech_prob > _NO_SPEECH and segment.avg_logprob < _DOUBTFUL)


def without_repeats(text: str) -> str:
    """Cut words that are said over and over, as recognisers do in noise, to the first time.

    Up to eight words three times or more in a row; "no, no, no" of one word may be meant.
    """
    words = text.split()
    plain = [re.sub(r"\W", "", word).lower() for word in words]
    kept: list[str] = []
    at = 0
    while at < len(words):
        for length in range(1, 9):
            phrase = plain[at : at + length]
            times = 1
            while plain[at + times * length : at + (times + 1) * length] == phrase:
                times += 1
            if len(phrase) == length and times >= (6 if length == 1 else 3):
                kept += words[at : at + length]
                at += times * length
                break
        else:
            kept.append(words[at])
            at += 1
    return " ".join(kept)


def _read(path: str, start: int, stop: int) -> np.ndarray:
    import numpy as np

    return np.fromfile(path, "<i2", max(0, stop - start), offset=start * BYTES_A_SAMPLE)
