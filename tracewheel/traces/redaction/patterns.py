"""The detectors of secrets: published rules (`rules.json`), further forms (`forms.toml`), and secrets by places and names.

`rules.json` is made from the configuration of Betterleaks, a scanner of repositories, by `data/make_redaction_rules.py`.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tracewheel.traces.redaction.detector import Detector, any_of, mixed, read_forms, when
from tracewheel.traces.redaction.secret_places import secret_places
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
QUOTED = "\"'"
_WORDS = re.compile(r"[A-Za-z]+(?:[_\-][A-Za-z]+)*")
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


def _fits_word(value: str) -> bool:
    """For names of keys and tokens, which are drawn: no word, and no words with hyphens or underscores."""
    return _fits_quoted(value) and not (_WORDS.fullmatch(value) and (len(value) < 12 or not value.isalpha()))


def _fits_bare(value: str) -> bool:
    if _PLACEHOLDER.fullmatch(value):
        return False
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


def _named_sign(words: str, most: int = 24) -> str:
    """The sign of a name, with affixes, and what says that its value follows."""
    value = r"(?:[^A-Za-z0-9]{0,16}[:=]|[^A-Za-z0-9]{1,6}(?:is|was|to)[^A-Za-z])"
    affix = rf"[A-Za-z0-9_\-]{{0,{most}}}" if most else ""
    return rf"(?i)(?:{words}){affix}{value}"


def _detectors() -> list[Detector]:
    def named(kind: str, signs: str, pattern: str, fits: Callable[[str], bool]) -> Detector:
        compiled = re.compile(pattern, re.IGNORECASE | re.ASCII | re.MULTILINE)
        return Detector(kind, signs, compiled, compiled.groupindex["value"], _named(fits), nested=True, doubt=2)

    found = []
    for kind, words in _STRONG.items():
        quoted = rf"{_names(words)}{_ASSIGNED}[@rbuf]?([{QUOTES}])(?P<value>[^\n\r]{{1,300}}?)\1"
        bare = rf"{_names(words)}{_ASSIGNED}(?P<value>{_BARE}){_END}"
        line = rf"^[ \t]*[\w.\-]*{_names(words)}[ \t]{{0,8}}[:=][ \t]{{0,8}}(?P<value>{_BARE})[ \t]*$"
        prose = rf"\b(?:{words})(?:\s{{1,4}}(?:is|was|to)\b:?\s{{0,4}}|\s{{0,4}}:\s{{0,4}})[{QUOTES}]?(?P<value>{_BARE}){_END}"
        option = rf"(?<!\w)--?(?:[a-z]+-)?(?:{words})[ =][{QUOTES}]?(?P<value>{_BARE})"
        fits_quoted = _fits_quoted if kind == "password" else _fits_word
        for pattern, fits in ((quoted, fits_quoted), (bare, _fits_bare), (line, _fits_line), (prose, _fits_prose)):
            found.append(named(kind, _named_sign(words), pattern, fits))
        found.append(named(kind, rf"(?i)-(?:[a-z]{{1,30}}-)?(?:{words})[ =\n]", option, _fits_option))
    assigned = rf"{_names('token(?!iz)')}{_ASSIGNED}[{QUOTES}]?(?P<value>{_BARE})"
    said = rf"\b(?:password|passphrase|passcode)\s{{1,4}}([{QUOTES}])(?P<value>[^\s{QUOTES}]{{6,100}})\1"
    short = rf"{_SHORT}[{QUOTES}]?\]?{_ASSIGNED}[{QUOTES}]?(?P<value>{_BARE})"
    maker = rf"(?<![A-Za-z]){_MAKERS}{_KEY_WORDS}{{0,4}}[{QUOTES}]?\]?{_ASSIGNED}[{QUOTES}]?(?P<value>{_BARE})"
    return [
        *found,
        named("token", _named_sign("token"), assigned, _fits_weak),
        named("token", "--token", rf"--token[ =][{QUOTES}]?(?P<value>{_BARE})", _fits_weak),
        named("password", r"(?i)pass(?:word|phrase|code)\s{1,4}[^\w\s]", said, _fits_prose),
        named("password", _named_sign("pass|pw", 0), short, _fits_short),
        named("api_key", f"(?i){_MAKERS}", maker, _fits_maker),
    ]


def _fits_option(value: str) -> bool:
    return len(value) >= 4 and not value.startswith("-") and not _PLACEHOLDER.fullmatch(value) and "REDACTED_" not in value


NAMED_SECRETS = tuple(_detectors())


def _has_long_part(value: str) -> bool:
    """Whether a part between hyphens is long and mixed: `sk-container-id-1` is only a name in a style sheet."""
    return any(len(part) >= 12 and mixed(part) for part in re.split("[-_]", value)) or (len(value) >= 40 and mixed(value))


_CHECKS: dict[str, Callable[[str], bool]] = {"": bool, "mixed": mixed, "long part": _has_long_part}


@cache
def secret_detectors() -> tuple[Detector, ...]:
    """All detectors of secrets, the most certain first: the earlier wins a tie."""
    return (*_published_rules(), *_own_forms(), *secret_places(), *NAMED_SECRETS)


def _published_rules() -> Iterator[Detector]:
    """Keys and tokens by their form, or after their maker's name."""
    for rule in json.loads((Path(__file__).parent / "rules.json").read_text(encoding="utf-8"))["rules"]:
        signs = "|".join(rule["words"]) or f"(?:{rule['shape']})"
        identify = when(functools.partial(_is_drawn, least=rule.get("entropy", 0.0)))
        yield Detector(rule["kind"], signs, rule["pattern"], rule["group"], identify, doubt=2 if rule["named"] else 0)


def _is_drawn(value: str, least: float) -> bool:
    """Whether a value has the entropy, in bits a character, of one that a machine has drawn."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) >= least and not _PLACEHOLDER.fullmatch(value.strip(QUOTED))


def _own_forms() -> Iterator[Detector]:
    """Forms that the published rules lack."""
    for kind, signs, check, pattern in read_forms("forms"):
        compiled = re.compile(pattern, re.ASCII)
        yield Detector(kind, signs, compiled, min(compiled.groups, 1), when(_CHECKS[check]))


def custom_detectors(patterns: Mapping[str, str]) -> list[Detector]:
    """Detectors for a profile's own patterns, by kind. They have no sign and are tried on every text."""
    found = []
    for kind, pattern in patterns.items():
        compiled = re.compile(pattern)
        found.append(Detector(kind, "", compiled, min(compiled.groups, 1)))
    return found
