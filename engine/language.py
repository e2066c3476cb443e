"""Whether the model knows the language of a question: a rule over the scripts of its letters."""

from __future__ import annotations

import unicodedata

# A term quoted in another script ("What does 糖化血红蛋白 mean?") does not change the language.
FOREIGN_SHARE = 0.5

# The scripts each language is written in, by the first word of a letter's Unicode name.
_SCRIPTS = {
    "zh": {"CJK"},
    "ja": {"CJK", "HIRAGANA", "KATAKANA"},
    "ko": {"HANGUL", "CJK"},
    "ru": {"CYRILLIC"},
    "uk": {"CYRILLIC"},
    "el": {"GREEK"},
    "ar": {"ARABIC"},
    "fa": {"ARABIC"},
    "he": {"HEBREW"},
    "hi": {"DEVANAGARI"},
    "th": {"THAI"},
}
# Greek letters are symbols of every language's medicine (α, β, µ).
_LATIN = {"LATIN", "GREEK", "MICRO", "FEMININE", "MASCULINE", "FULLWIDTH"}
# One ideograph says about as much as this many letters of an alphabet.
_IDEOGRAPH_WEIGHT = 3


def is_known(text: str, languages: tuple[str, ...] | None) -> bool:
    """Whether `text` is written in a script that one of `languages` uses; None knows all.

    Languages that share a script are not told apart.
    """
    if languages is None:
        return True
    known = set().union(*(_SCRIPTS.get(language, _LATIN) for language in languages))
    total = foreign = 0
    for letter in text:
        if not letter.isalpha():
            continue
        script = unicodedata.name(letter, "UNKNOWN").split()[0].split("-")[0]
        weight = _IDEOGRAPH_WEIGHT if script in ("CJK", "HANGUL") else 1
        total += weight
        foreign += weight if script not in known else 0
    return foreign <= total * FOREIGN_SHARE
