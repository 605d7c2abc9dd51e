"""A judge's marks: the form in which they are asked for, and how a reply is read.

Several judges' marks are joined to one: the majority, or the median, and how far they disagree.
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracewheel import read_json_at
from tracewheel_graders.judges.criteria import Criterion

MET, NOT_MET, CANNOT = "met", "not_met", "cannot_be_determined"
THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
LONGEST_REASON = 300


@dataclass(frozen=True)
class Mark:
    """The mark of one criterion: `value` in [0, 1], None where it cannot be determined, and the judge's reason."""

    value: float | None
    reason: str = ""


def marks_schema(criteria: Sequence[Criterion]) -> dict[str, Any]:
    """The JSON Schema of a verdict. Every object is closed and all fields are required, as strict endpoints want it."""
    marks = {
        criterion.name: _closed({"reason": {"type": "string"}, "verdict": {"type": "string", "enum": allowed(criterion)}})
        for criterion in criteria
    }
    return _closed({"criteria": _closed(marks)})


def allowed(criterion: Criterion) -> list[Any]:
    """The marks that a criterion may get, as a judge writes them."""
    return [MET, NOT_MET, CANNOT] if criterion.levels == 1 else [*map(str, range(criterion.levels + 1)), CANNOT]


def read_marks(text: str, criteria: Sequence[Criterion]) -> dict[str, Mark]:
    """The marks of the last verdict in a reply. A reply may think aloud and quote other verdicts before it.

    Raises:
        ValueError: the reply holds no verdict, or its last one lacks a criterion or has an unknown mark.
    """
    verdict = last_object(text, "criteria")
    given = verdict["criteria"]
    if not isinstance(given, dict) or set(given) != {criterion.name for criterion in criteria}:
        raise ValueError(f"the verdict marks {sorted(given) if isinstance(given, dict) else type(given).__name__}")
    return {criterion.name: _mark(given[criterion.name], criterion) for criterion in criteria}


def last_object(text: str, key: str) -> dict[str, Any]:
    """The last JSON object in a text that has the key, outside of thinking.

    Raises:
        ValueError: there is none.
    """
    text = THINKING.sub("", text)
    found, at = None, text.find("{")
    while at >= 0:
        try:
            value, end = read_json_at(text, at)
        except ValueError:
            end, value = at + 1, None
        if isinstance(value, dict) and key in value:
            found = value
        at = text.find("{", end)
    if found is None:
        raise ValueError(f"no JSON object with '{key}' in the reply: {text.strip()[:80]!r}")
    return found


def written_schema(criteria: Sequence[Criterion]) -> str:
    """An example of a verdict, for endpoints that enforce no schema and for models that read better than they parse."""
    marks = {c.name: {"reason": "one short sentence", "verdict": " | ".join(allowed(c))} for c in criteria}
    return json.dumps({"criteria": marks}, indent=1)


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _mark(given: Any, criterion: Criterion) -> Mark:
    if not isinstance(given, dict) or "verdict" not in given:
        raise ValueError(f"criterion {criterion.name}: no verdict")
    said, reason = given["verdict"], str(given.get("reason", ""))[:LONGEST_REASON]
    text = said.strip().lower() if isinstance(said, str) else str(said) if type(said) is int else ""
    if text not in allowed(criterion):
        raise ValueError(f"criterion {criterion.name}: verdict {said!r} is none of {', '.join(allowed(criterion))}")
    if text == CANNOT:
        return Mark(None, reason)
    return Mark(float(text == MET) if criterion.levels == 1 else int(text) / criterion.levels, reason)


@dataclass(frozen=True)
class Joined:
    """What an ensemble says.

    Attributes:
        total: The weighted mean of the marks in [0, 1]; a criterion that cannot be determined counts as 0. None where no
            criterion could be determined.
        marks: Criterion to its joint mark; None where it cannot be determined.
        disagreement: The chance that two members mark a criterion differently, as a weighted mean over criteria, in [0, 1].
    """

    total: float | None
    marks: Mapping[str, float | None]
    disagreement: float


def join_marks(criteria: Sequence[Criterion], votes: Sequence[Mapping[str, Mark]]) -> Joined:
    """Join the votes of an ensemble.

    A criterion of two levels is met if more than half of all votes say so: a tie does not pass, and who cannot tell does not
    vote for it. A criterion of more levels gets the lower median of the marks that were given. A criterion cannot be
    determined if at least half of the votes say that.

    Args:
        criteria: The criteria with their weights.
        votes: At least one; each has a mark of every criterion.
    """
    marks = {criterion.name: _joint(criterion, [vote[criterion.name].value for vote in votes]) for criterion in criteria}
    weights = sum(criterion.weight for criterion in criteria)
    known = [value for value in marks.values() if value is not None]
    total = sum(criterion.weight * (marks[criterion.name] or 0.0) for criterion in criteria) / weights
    spread = sum(c.weight * pair_difference([vote[c.name].value for vote in votes]) for c in criteria) / weights
    return Joined(total if known else None, marks, spread)


def pair_difference(marks: Sequence[float | None]) -> float:
    """The mean difference of two marks over all pairs of votes, 0 with one vote. A mark and none differ by 1."""
    pairs = list(itertools.combinations(marks, 2))
    return sum(_difference(one, other) for one, other in pairs) / len(pairs) if pairs else 0.0


def agreement_weight(disagreement: float) -> float:
    """What the reward's share is multiplied with: 1 where all agree, 0 where every pair differs fully."""
    return 1.0 - disagreement


def _difference(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        return float(one is not other)
    return abs(one - other)


def _joint(criterion: Criterion, values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    if 2 * len(given) <= len(values):
        return None
    if criterion.levels == 1:
        return float(2 * sum(given) > len(values))
    return statistics.median_low(given)
