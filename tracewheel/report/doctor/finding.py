"""The result of one check of a run."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

Severity = Literal["severe", "warning", "healthy", "not_checked"]
# The worst first.
SEVERITIES: tuple[Severity, ...] = ("severe", "warning", "not_checked", "healthy")


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check: Name of the check.
        severity: `severe`, `warning`, `healthy`, or `not_checked` where records are missing.
        evidence: The figures behind it, as JSON types.
        advice: What to do; for `not_checked`, what is missing; empty for `healthy`.
        iterations: The iterations that it concerns.
        loop: The specialist whose loop was checked; empty where a run has one loop.
    """

    check: str
    severity: Severity
    evidence: Mapping[str, Any] = field(default_factory=dict)
    advice: str = ""
    iterations: tuple[int, ...] = ()
    loop: str = ""

    def to_record(self) -> dict[str, Any]:
        """The finding as JSON types."""
        return {**asdict(self), "evidence": dict(self.evidence), "iterations": list(self.iterations)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Finding:
        """The finding that `to_record` wrote."""
        return cls(**{**record, "iterations": tuple(record["iterations"])})

    @property
    def sentence(self) -> str:
        """The finding in one line, for a terminal."""
        where = f" (iteration {_ranges(self.iterations)})" if self.iterations else ""
        figures = ", ".join(f"{name} {shown(value)}" for name, value in self.evidence.items() if not isinstance(value, Mapping))
        name = f"{self.loop}: {self.check}" if self.loop else self.check
        return f"{name}{where}: {figures}. {self.advice}".strip()


def advice(name: str) -> str:
    """What to do, by the name of a check or of what it found: a text of `advice.yaml`."""
    return _texts()[name]


@functools.cache
def _texts() -> Mapping[str, str]:
    found: Mapping[str, str] = yaml.safe_load(Path(__file__).with_name("advice.yaml").read_text(encoding="utf-8"))
    return found


def not_checked(check: str, why: str) -> Finding:
    """The finding of a check whose records are missing."""
    return Finding(check, "not_checked", {}, why)


def worst(severities: Iterable[Severity]) -> Severity:
    """The worst severity; `healthy` where there is none."""
    return min(severities, key=SEVERITIES.index, default="healthy")


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Findings sorted by severity; those of equal severity keep their order."""
    return sorted(findings, key=lambda item: SEVERITIES.index(item.severity))


def shown(value: Any) -> str:
    """A figure of the evidence as text."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value) or "none"
    return str(value)


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as text, with consecutive ones as ranges: 2, 4 to 7."""
    stretches: list[list[int]] = []
    for number in sorted(numbers):
        if stretches and number == stretches[-1][-1] + 1:
            stretches[-1].append(number)
        else:
            stretches.append([number])
    return ", ".join(f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in stretches)
