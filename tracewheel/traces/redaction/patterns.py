"""The detectors of secrets: those of detect-secrets, further vendors' keys (`forms.toml`), and secrets by places and names.

Each detector has a regular expression and a looser trigger. All triggers are searched at once in the bytes of a whole trace
(RE2, linear in the length for any number of triggers); an expression is tried only if its trigger matches. So a trigger has
to match wherever its expression does, also in JSON text within JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from tracewheel.traces.redaction.detector import GAP, Detector, any_of, as_found, mixed, read_forms, when
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


# Parts of its expressions that take time with the square or the cube of a text's length, and what matches the same in one pass.
BOUNDED = {
    r"(?: *)(?:=|:|:=|=>| +|::)(?: *)": r"(?: *+(?:=|:|:=|=>|::) *+| ++)",
    r"\/\/.+\/:_authToken=": r"\/\/.{1,200}\/:_authToken=",
    r"sk-[A-Za-z0-9-_]*[": r"(?:(?<![A-Za-z0-9_\-])sk-[A-Za-z0-9-_]*|sk-(?:(?!sk-)[A-Za-z0-9-_])*)[",
}


def _has_long_part(value: str) -> bool:
    """Whether a part between hyphens is long and mixed: `sk-container-id-1` is only a name in a style sheet."""
    return any(len(part) >= 12 and mixed(part) for part in re.split("[-_]", value)) or (len(value) >= 40 and mixed(value))


_CHECKS: dict[str, Callable[[str], bool]] = {"": bool, "mixed": mixed, "long part": _has_long_part}
_PREFIX_IS_GROUP = ("github_token", "gitlab_token", "npm_token")  # their group is not the secret


@cache
def secret_detectors() -> tuple[Detector, ...]:
    """All detectors of secrets, the most certain first: the earlier wins a tie."""
    return (*_library_detectors(), *_vendor_keys(), *secret_places(), *NAMED_SECRETS)


def _library_detectors() -> list[Detector]:
    import importlib

    found = []
    for kind, name, trigger in read_forms("libraries"):
        module, _, class_name = name.partition(".")
        plugin = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), class_name)
        for pattern in plugin.denylist:
            group = 1 if pattern.groups == 1 and kind not in _PREFIX_IS_GROUP else 0
            bounded = pattern.pattern
            for slow, fast in BOUNDED.items():
                bounded = bounded.replace(slow, fast)
            ascii_only = re.compile(bounded, pattern.flags & ~re.UNICODE | re.ASCII)
            found.append(Detector(kind, trigger, ascii_only, group, doubt=2 * group))
    return found


def _vendor_keys() -> list[Detector]:
    """Keys and tokens of vendors that are known by their form: a prefix, a length, a checksum's place."""
    found = []
    for kind, check, pattern in read_forms("vendors"):
        compiled = re.compile(pattern, re.ASCII)
        found.append(Detector(kind, pattern.replace(r"\b", ""), compiled, 0, when(_CHECKS[check])))
    for kind, trigger, pattern in read_forms("elsewhere"):
        compiled = re.compile(pattern, re.ASCII)
        found.append(Detector(kind, trigger, compiled, min(compiled.groups, 1), as_found))
    return found


def custom_detectors(patterns: Mapping[str, str]) -> list[Detector]:
    """Detectors for a profile's own patterns, by kind. They have no trigger and are tried on every text."""
    found = []
    for kind, pattern in patterns.items():
        compiled = re.compile(pattern)
        found.append(Detector(kind, "", compiled, min(compiled.groups, 1)))
    return found
