"""Whether the model knows the language a question is asked in."""

from __future__ import annotations

import re
import threading
import unicodedata
from typing import Any

# One of py3langid's 300 languages is believed only above this: "Is this normal" scores 0.70 for
# English, "Kan şekeri neden yüksek?" 0.79 for Turkish, "metformin dose?" 0.04 for Azerbaijani.
SURE = 0.75
# Nobody asks in Latin, and "Molluscum contagiosum?" scores 0.86 for it: anatomy, diagnoses and
# prescriptions belong to every language. "Ter in die" scores 0.77 for Afrikaans.
_LATIN = "la"
_PRESCRIPTION = re.compile(r"\b(?:semel|bis|ter|quater) in die\b", re.IGNORECASE)
# The beginning of a pasted report tells its language as well as the whole.
JUDGED_CHARS = 2000
# About as many ideographs as make a word when they are counted against words of letters.
_IDEOGRAPHS_A_WORD = 3
_WORD = re.compile(r"[^\W\d_]+")

# The scripts of languages not written in Latin letters, by first words of Unicode names.
_SCRIPTS = {
    "zh": {"CJK"},
    "ja": {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"},
    "ko": {"HANGUL", "CJK"},
    "ru": {"CYRILLIC"},
    "uk": {"CYRILLIC"},
    "bg": {"CYRILLIC"},
    "sr": {"CYRILLIC", "LATIN"},
    "ar": {"ARABIC"},
    "fa": {"ARABIC"},
    "ur": {"ARABIC"},
    "he": {"HEBREW"},
    "hi": {"DEVANAGARI"},
    "bn": {"BENGALI"},
    "ta": {"TAMIL"},
    "th": {"THAI"},
    "el": {"GREEK"},
}
# Greek letters are symbols of every language's medicine: α, β, µ.
_SYMBOLS = {"GREEK", "MICRO", "FEMININE", "MASCULINE", "FULLWIDTH", "DOUBLE-STRUCK"}


class LanguageCheck:
    """Judges questions by script first, then, among languages of one script, by their letters.

    `languages` are the ISO 639-1 codes the model knows. A term quoted in another script does not
    change a question's language, and a question too short to tell is believed to be known.
    """

    def __init__(self, languages: tuple[str, ...]) -> None:
        self._languages = frozenset(languages)
        self._scripts = _SYMBOLS.union(*(_SCRIPTS.get(code, {"LATIN"}) for code in languages))
        self._identifier: Any = None
        self._loading = threading.Lock()

    def load(self) -> None:
        """Read the identifier's tables (0.6 s); `knows` does it when nobody did before."""
        with self._loading:
            if self._identifier is None:
                from py3langid.langid import MODEL_FILE, LanguageIdentifier

                self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def knows(self, text: str) -> bool:
        """Whether the model knows the language of `text`."""
        text = text[:JUDGED_CHARS]
        known, foreign = self._words_by_script(text)
        if foreign > known:
            return False
        # Fewer words than this never reach `SURE`, and most of them are names of drugs.
        if known < 2:
            return True
        self.load()
        language, probability = self._identifier.classify(_PRESCRIPTION.sub("", text))
        return language == _LATIN or language in self._languages or probability < SURE

    def _words_by_script(self, text: str) -> tuple[float, float]:
        """Count the words in the model's scripts and, weighted, those in others."""
        known = foreign = 0.0
        for run in _WORD.findall(text):
            strange = sum(_script(letter) not in self._scripts for letter in run)
            if not strange:
                # "HbA1c" or "WBC" belong to every language.
                known += run[1:].islower()
            elif _script(run[-1]) in ("CJK", "HANGUL", "HIRAGANA", "KATAKANA"):
                foreign += strange / _IDEOGRAPHS_A_WORD
            else:
                foreign += 1
        return known, foreign


def _script(letter: str) -> str:
    return unicodedata.name(letter, "UNKNOWN").split()[0]
