"""The detectors of secrets: those of detect-secrets, further vendors' keys (`forms.toml`), and secrets by places and names.

Each detector has a regular expression and a looser trigger. All triggers are searched at once in the bytes of a whole trace
(RE2, linear in the length for any number of triggers); an expression is tried only if its trigger matches. So a trigger has
to match wherever its expression does, also in JSON text within JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from tracewheel.traces.redaction.detector import Detector, as_found, mixed, read_forms, when
from tracewheel.traces.redaction.named_secrets import NAMED_SECRETS
from tracewheel.traces.redaction.secret_places import secret_places

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
