"""Units of lab sheets: how they are recognised, mended and compared."""

from __future__ import annotations

import re

from engine.perception.labnumber import plain

_POWER = r"(?:[x×*·]\s?)?10\s?[\^*e]{0,2}\s?-?\d{1,2}"
_STEM = (
    r"(?:[a-zμ]{0,3}(?:mol|eq|osm)|[kmμunpfdc]?(?:g|l)|[mμuk]?iu|[mμuk]?u|mm?|cm|sec|min|s|h|hr|d"
    r"|copies|cells?|rbc|wbc|k|g|t|pa|kpa|mmhg|°c|个|拷贝|秒|ratio|index|s/co|coi|au|ru|rlu|cfu|%|‰)"
)
_UNIT = re.compile(
    rf"(?:{_POWER}\s?)?(?:%|‰|{_STEM})?(?:/\s?[\w.^²³*μ%]{{1,12}}){{1,2}}"
    rf"|{_STEM}|{_POWER}|fl|pg|s/co|mmol|ratio",
    re.IGNORECASE,
)
_HAS_LETTER = re.compile(r"[^\W\d_]|[%‰]")
# A unit behind a number: "3.5-9.5 10^9/L", "<5.2mmol/L", "35-45 %". A bare letter is none:
# "13-17 M" speaks of men, "7.9 L" of a low value.
_BEHIND = re.compile(
    r"(?<=[\d)\]])(?P<unit>\s*[x×*·]\s?10[\^*e]{0,2}\s?-?\d{1,2}(?:/\s?\S+)?|\s+10[\^*e]{0,2}\s?\d{0,2}/\s?\S+"
    r"|\s*[A-Za-zμ%个][\w%.*^]*/\s?\S+|\s*(?:%|‰|fl|pg|sec|s|秒|mmhg|kpa|mmol|°c|s/co|coi|index)|\s+(?:g|m?iu|u))$",
    re.IGNORECASE,
)

# Readers take the raised 9 of "10⁹" for a plain one, its ring for a degree or a star.
_POWERS = r"(12|3|6|9|¹²|³|⁶|⁹)"
_LOST_POWER = re.compile(rf"^((?:[x×*]\s?)?10)\s?[\^*°~eE]{{0,2}}\s?{_POWERS}\s?/\s?")
_DIGITS = str.maketrans("¹²³⁶⁹", "12369")
# A slash between straight letters is lost: no unit is called so.
_LOST_SLASH = re.compile(r"^([mμµunpk]?mol|[mμµunpk]?g|[mμµuk]?I?U)(d?L)$")
_LOST_I = re.compile(r"^([mμµuk]?)[l1|]U/")

# Other spellings of the same amount.
_SAME = {"10^3/ul": "10^9/l", "k/ul": "10^9/l", "10^6/ul": "10^12/l", "m/ul": "10^12/l"}
_SAME |= {"10^3/mm3": "10^9/l", "10^6/mm3": "10^12/l", "g/l(10^9)": "10^9/l"}
_SAME |= {"iu/l": "u/l", "miu/ml": "u/l", "mu/ml": "u/l", "iu/ml": "u/ml", "uiu/ml": "mu/l"}
_SAME |= {"miu/l": "mu/l", "uu/ml": "mu/l", "ng/ml": "ug/l", "pg/ml": "ng/l", "ug/ml": "mg/l"}
_SAME |= {"sec": "s", "秒": "s", "mg/ml": "g/l"}


def is_unit(text: str) -> bool:
    """Whether the text could be a unit and nothing else."""
    spelled = plain(text)
    # A letter alone is a mark or a sex, but for these.
    if len(spelled) == 1 and spelled not in "gsU%‰秒":
        return False
    return bool(_HAS_LETTER.search(spelled) or spelled.startswith("10")) and bool(
        _UNIT.fullmatch(spelled)
    )


def clean_unit(text: str) -> str:
    """Mend what readers take for something that no unit is: "mlU/L", "109/L", "UL"."""
    mended = _LOST_SLASH.sub(r"\1/\2", _LOST_I.sub(r"\1IU/", text.strip()))
    return _LOST_POWER.sub(lambda found: f"{found[1]}^{found[2].translate(_DIGITS)}/", mended)


def is_incomplete(text: str) -> bool:
    """Whether it is a power of ten without its power, which readers lose when it is raised."""
    return re.fullmatch(r"(?:[x×*]\s?)?10\s?[\^*°]?/\s?l", text, re.IGNORECASE) is not None


def split_unit(text: str) -> tuple[str, str]:
    """Part a unit printed behind the numbers from them; it is empty when there is none."""
    spelled = plain(text)
    found = _BEHIND.search(spelled)
    if found is None:
        return spelled, ""
    return spelled[: found.start()].strip(), found["unit"].strip()


def same_unit(one: str, other: str) -> bool:
    """Whether two spellings mean the same amount; a unit that is not printed contradicts none."""
    keys = [_key(text) for text in (one, other)]
    return "" in keys or keys[0] == keys[1]


def _key(text: str) -> str:
    spelled = plain(clean_unit(text)).lower()
    spelled = re.sub(r"\s", "", spelled).removeprefix("x").removeprefix("×").removeprefix("*")
    spelled = re.sub(r"^10(?:\*\*?|e)?\^?(\d)", r"10^\1", spelled)
    spelled = spelled.replace("μ", "u").replace("mcg", "ug").replace("mm^3", "mm3")
    return _SAME.get(spelled, spelled)
