"""Identifiers that a state gives to a person: by a form that few other texts have and its check digits, or by the words before.

Check digits are python-stdnum's. Identifiers of digits only, of which one in ten or so has a right check digit by chance, need
words before them that name them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from tracewheel.traces.redaction.detector import Detector, any_of, read_forms
from tracewheel.traces.redaction.unescaped import QUOTES

_START, _END = r"(?<![\w.\-/+])", r"(?![\w\-/]|\.\d)"
_NOT_PERSONAL = (
    r"(?i)(?:part|p/n|pn|sku|order|invoice|ticket|tracking|serial|s/n|model|item|product|catalog(?:ue)?|case"
    r"|build|version|ref|commit|hash)"
    r"(?:[ _.\-]?(?:number|no|nr|id|code|key))?[\"'` \t:=#.]{0,4}$"
)
_WORDS = any_of("national_id_words")
_BETWEEN = rf"[ \t:=#.,()*°º№{QUOTES}\-]"
_NUMBER = r"[A-Z]{0,5}[ \-]?\d[\dA-Z]*(?:[ ./\-](?=[\dA-Z]*\d)[\dA-Z]{1,8}){0,7}(?:[ \-]?[A-Z](?!\w))?"
_NAMED = re.compile(
    rf"(?:\b|_|(?<=[a-z])){_WORDS}(?:[ _.\-]?(?:numbers?|num|no|nr|id|code|card|n°|nº|#)(?![A-Za-z]))*"
    rf"{_BETWEEN}{{1,8}}(?:(?:is|was|are|ist|est|es|:){_BETWEEN}{{1,4}})?({_NUMBER})(?![\w])",
    re.IGNORECASE | re.ASCII,
)
_TRIGGER = (
    r"(?i)ssn|social.?security|national.?i[dn]|nino|tax(?:payer)?.?(?:id|file)|nhs|cpf|aadha|pan card|pesel|nip"
    r"|codice fiscale|insee|curit.{1,12}sociale"
    r"|steuer|sozialvers|rentenvers|burgerserv|bsn|personnummer|personal.?id|henkil|hetu|dselsnummer|cpr|ahv"
    r"|avs|social insurance|id.?n|id.?card|identity.?[cn]"
)


def _digits(written: str) -> str | None:
    """The letters and digits of a number of five to twenty digits."""
    compact = re.sub(r"[^0-9A-Za-z]", "", written).upper()
    return compact if 5 <= sum(map(str.isdigit, compact)) <= 20 else None


def _checked(module: str) -> Callable[[str], str | None]:
    @lru_cache(maxsize=4096)
    def identify(written: str) -> str | None:
        import importlib

        if not module:
            return _digits(written)
        try:
            valid: bool = importlib.import_module(f"stdnum.{module}").is_valid(written)
        except KeyError:  # stdnum 2 has no county for some places of China
            return None
        return re.sub(r"[^0-9A-Za-z+]", "", written).upper() if valid else None

    return identify


def national_ids() -> list[Detector]:
    """The detectors of national identifiers."""
    found = []
    for module, trigger, form in read_forms("national_ids"):
        pattern = re.compile(_START + form + _END, re.ASCII)
        found.append(Detector("national_id", trigger, pattern, 0, _checked(module), unless=re.compile(_NOT_PERSONAL)))
    found.append(Detector("national_id", _trigger(), _NAMED, 1, _digits))
    return found


def _trigger() -> str:
    """The words, with a digit not far behind; letters that are not ASCII may be escaped."""
    others = (
        r"주민|身份|\\u(?:c8fc|8eab|03b1)|curp|cui[tl]|nric|kimlik|cnp|rodn|oib|αμκα|ΑΜΚΑ|amka|egn|thai id|pps|isikukood|asmens"
        r"|rijksreg|ro national|medica|voter|ausweis|mbi|itin"
    )
    capitals = "SIN|TIN|PAN|FIN|NIR|RUT|NIE|NIF|DNI|TFN|IRD|UTR"
    words = f"(?:{_TRIGGER}|{others}|(?-i:{capitals}))"
    latin = words.encode().decode("latin-1")
    return rf"{latin}[^\n]{{0,40}}[0-9]"
