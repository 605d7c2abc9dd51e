"""Detectors of secrets marked only by a name before them: `password: hunter2`, `"client_secret": "…"`, `--token …`."""

from __future__ import annotations

import re
from collections.abc import Callable

from tracewheel.traces.redaction.detector import GAP, Detector, any_of, mixed
from tracewheel.traces.redaction.unescaped import QUOTES

_STRONG = {
    "password": r"passw(?:or)?ds?|passphrase|passcode|pwd",
    "secret": r"secret|credential",
    "api_key": r"(?:api|access|auth|private|client|account|service|encryption|signing|subscription|storage"
    r"|master|licen[cs]e|app|application"
    r"|webhook|integration|project|sas|jwt|hmac|crypto)[_\- ]?key(?:[_\-]id)?|apikey",
    "token": r"(?:access|auth|refresh|bearer|bot|session|security|csrf|api|id|oauth|private|deploy|personal"
    r"|user|app|registry)[_\- ]?token",
}
_WEAK = {"token": r"token"}
# What a name of a password or secret ends in if its value is no secret.
_ABOUT = rf"{any_of('about_secrets')}s?"
# A password's short name: `pass: …`, `DB_PASS=…`, `dbpw=…`. In capitals it needs a name before it: "PASS: test_1" is a
# test's result.
_SHORT = (
    r"(?:(?-i:(?<![A-Za-z])[Pp]ass)|(?-i:(?<![A-Za-z])(?:PW|pw))|(?<=[A-Za-z0-9][_.\-])(?:pass|pw)|(?<=db|my|pg)(?:pass|pw)"
    r"|(?<=user|smtp|root|mail)(?:pass|pw))"
)
# Makers whose keys have no form of their own, directly before the value or before a word for a key.
_MAKERS = any_of("makers")
_KEY_WORDS = (
    r"(?:[_.\- ]?(?:api|app|application|access|auth|client|consumer|deploy|personal|secret|key|token|pat"
    r"|pass(?:word)?|pw|credentials?|ci|login|bearer))"
)
_PLACEHOLDER = re.compile(rf"(?i){any_of('placeholders')}")
_REFERENCE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[a-z]+(?:_[a-z]+)+|[A-Z]+(?:_[A-Z]+)+|/\S*|\.\S*")
_NO_PASSWORD = re.compile(
    r"(?i)[\d.,]+[a-z%]{0,3}|[a-z]+(?:[_-][a-z0-9]+)*[_-]\d+|test\w*|.*\.(?:py|[jt]sx?|c|cc|cpp|go|rs|rb|java"
    r"|exp|txt|md|html?)|.*/.*|v\d.*"
)
_PROSE = re.compile(r"(?i)\b(?:the|your|must|should|to|of|for|is|an?|not|and|or)\b")
_END = rf"(?=$|[\s,;&{QUOTES})\]}}<>|])"
_BARE = rf"[^\s,;&(){{}}\[\]<>|{QUOTES}]++"


def _names(words: str) -> str:
    """A pattern for a name with affixes and a closing quote or bracket."""
    return rf"(?:{words})(?![\w\-]{{0,24}}?{_ABOUT}[{QUOTES}]?\]?[ \t]{{0,8}}[:=])[\w\-]{{0,24}}[{QUOTES}]?\]?"


_ASSIGNED = r"[ \t]{0,8}(?::=|=>|={1,3}|:)[ \t]{0,8}"


def _fits_quoted(value: str) -> bool:
    if len(value) < 4 or _PLACEHOLDER.fullmatch(value) or "REDACTED_" in value:
        return False
    words = value.split()
    return len(words) == 1 or (len(words) <= 8 and not _PROSE.search(value) and len(value) <= 80)


def _fits_bare(value: str) -> bool:
    value = value.rstrip(".:!?")
    if len(value) < 6 or _PLACEHOLDER.fullmatch(value) or _REFERENCE.fullmatch(value) or "REDACTED_" in value:
        return False
    return any(not c.isalpha() for c in value)


def _fits_line(value: str) -> bool:
    return len(value) >= 6 and value.islower() and not _PLACEHOLDER.fullmatch(value) and not _REFERENCE.fullmatch(value)


def _fits_prose(value: str) -> bool:
    value = value.rstrip(".:!?")
    return len(value) >= 5 and _fits_bare(value + "x") and mixed(value)


def _fits_short(value: str) -> bool:
    """For short names of a password: not a file, a test, or a measure."""
    value = value.rstrip(".:!?,")
    return len(value) >= 6 and mixed(value) and _fits_bare(value) and not _NO_PASSWORD.fullmatch(value)


def _fits_maker(value: str) -> bool:
    return (
        len(value) >= 15
        and mixed(value)
        and _fits_bare(value)
        and len(set(value)) >= 8
        and "/" not in value[:1]
        and "://" not in value
    )


def _fits_weak(value: str) -> bool:
    return len(value) >= 10 and mixed(value) and _fits_bare(value)


def _named(fits: Callable[[str], bool]) -> Callable[[str], str | None]:
    """Identify values that fit, without the end of a sentence, so that the secret is found within sentences too."""
    return lambda value: (value.rstrip(".:!?") or value) if fits(value) else None


def _detectors() -> list[Detector]:
    found = []
    for kind, words in _STRONG.items():
        trigger = rf"(?i)(?:{words})[A-Za-z0-9_\-]{{0,24}}{GAP}*(?:[:=]|(?:[\s\x0b]|\\[nrtbf])(?:is|was|to))"
        quoted = rf"{_names(words)}{_ASSIGNED}[@rbuf]?([{QUOTES}])(?P<value>[^\n\r]{{1,300}}?)\1"
        bare = rf"{_names(words)}{_ASSIGNED}(?P<value>{_BARE}){_END}"
        line = rf"^[ \t]*[\w.\-]*{_names(words)}[ \t]{{0,8}}[:=][ \t]{{0,8}}(?P<value>{_BARE})[ \t]*$"
        prose = rf"\b(?:{words})(?:\s{{1,4}}(?:is|was|to)\b:?\s{{0,4}}|\s{{0,4}}:\s{{0,4}})[{QUOTES}]?(?P<value>{_BARE}){_END}"
        for pattern, fits in ((quoted, _fits_quoted), (bare, _fits_bare), (line, _fits_line), (prose, _fits_prose)):
            compiled = re.compile(pattern, re.IGNORECASE | re.ASCII | re.MULTILINE)
            found.append(Detector(kind, trigger, compiled, compiled.groupindex["value"], _named(fits), nested=True, doubt=2))
        option = re.compile(rf"--?(?:[a-z]+-)?(?:{words})[ =][{QUOTES}]?(?P<value>{_BARE})", re.IGNORECASE | re.ASCII)
        found.append(
            Detector(kind, rf"(?i)-(?:[a-z]+-)?(?:{words})[ =]", option, 1, _named(_fits_option), nested=True, doubt=2)
        )
    for kind, words in _WEAK.items():
        assigned = re.compile(rf"{_names(words)}{_ASSIGNED}[{QUOTES}]?(?P<value>{_BARE})", re.IGNORECASE | re.ASCII)
        trigger = rf"(?i)(?:{words})[A-Za-z0-9_\-]{{0,24}}{GAP}*[:=]{GAP}*[^\s\",;(){{}}<>]{{10}}"
        found.append(Detector(kind, trigger, assigned, 1, _named(_fits_weak), nested=True, doubt=2))
    option = re.compile(rf"--token[ =][{QUOTES}]?(?P<value>{_BARE})", re.IGNORECASE | re.ASCII)
    found.append(Detector("token", r"(?i)--token[ =]", option, 1, _named(_fits_weak), nested=True, doubt=2))
    said = re.compile(
        rf"\b(?:password|passphrase|passcode)\s{{1,4}}([{QUOTES}])(?P<value>[^\s{QUOTES}]{{6,100}})\1", re.I | re.ASCII
    )
    trigger = r"(?i)pass(?:word|phrase|code)(?:[\s\x0b]|\\+[nrtbf])+(?:[\"'`]|\\)"
    found.append(Detector("password", trigger, said, 2, _named(_fits_prose), nested=True, doubt=2))
    short = re.compile(rf"{_SHORT}[{QUOTES}]?\]?{_ASSIGNED}[{QUOTES}]?(?P<value>{_BARE})", re.IGNORECASE | re.ASCII)
    found.append(Detector("password", rf"(?i)(?:pass|pw){GAP}*[:=]", short, 1, _named(_fits_short), nested=True, doubt=2))
    maker = re.compile(
        rf"(?<![A-Za-z]){_MAKERS}{_KEY_WORDS}{{0,4}}[{QUOTES}]?\]?{_ASSIGNED}[{QUOTES}]?(?P<value>{_BARE})",
        re.IGNORECASE | re.ASCII,
    )
    trigger = rf"(?i){_MAKERS}[A-Za-z_.\- ]{{0,30}}{GAP}*[:=]"
    found.append(Detector("api_key", trigger, maker, 1, _named(_fits_maker), nested=True, doubt=2))
    return found


def _fits_option(value: str) -> bool:
    return len(value) >= 4 and not value.startswith("-") and not _PLACEHOLDER.fullmatch(value) and "REDACTED_" not in value


NAMED_SECRETS = tuple(_detectors())
