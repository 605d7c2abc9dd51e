"""A verdict in words, for whoever shows it: console, report, dashboard, model card, tracking server, messages of a schedule.

In this order: the estimate, its interval, the tasks gained and lost, what may fall, and the one thing to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LUCK = 0.005  # of a gain, below which nobody needs to hear of it
POLICIES = {
    "base": "the base",
    "candidate": "the candidate",
    "champion": "the champion",
    "untrained": "the base with a fresh adapter",
    "warm_start": "the warm start on all logs",
    "warm_start_verified": "the warm start on verified logs",
}
UNTESTED = ("no_budget", "nothing_learnt")  # causes for which no figure was asked


def in_words(gate: Mapping[str, Any]) -> list[str]:
    """The record of a verdict (`gate.Verdict`) as sentences; of an old record, what it holds."""
    if gate.get("cause") in UNTESTED:
        return [_untested(gate), *_to_do(gate)]
    first = _promoted(gate) if gate.get("verdict") == "promoted" else _refused(gate)
    return [first, *_interval(gate), *_changes(gate), *_may_fall(gate), *_to_do(gate)]


def gain_of(gate: Mapping[str, Any]) -> float | None:
    """The gain to show of a verdict: of a promotion the expected one, else what was measured."""
    expected = gate.get("expected_gain")
    return gate.get("difference") if expected is None else expected


def policy_words(name: str) -> str:
    """A policy's name within a sentence."""
    return POLICIES.get(name, name.replace("_", " "))


def points(share: float) -> str:
    """A difference of rates in points, with its sign."""
    return f"{100 * share:+.1f}"


def tasks(count: int) -> str:
    """A number of tasks."""
    return f"{count:,} task{'' if count == 1 else 's'}"


def measured(difference: float, count: int, baseline: str, kind: str = "") -> str:
    """A measured difference: how much, on how many tasks (of a `kind`, as "fresh "), against which policy."""
    return f"{points(difference)} points on {count:,} {kind}task{'' if count == 1 else 's'} against {policy_words(baseline)}"


def _promoted(gate: Mapping[str, Any]) -> str:
    found, expected = gate.get("difference"), gain_of(gate)
    if found is None or expected is None:
        return "Promoted."
    over = f"points over {policy_words(str(gate.get('baseline', 'the baseline')))}"
    on = f"on {tasks(int(gate.get('pairs') or 0))}"
    if found - expected < LUCK:
        return f"Promoted: {points(found)} {over}, measured {on}."
    return f"Promoted: expect {points(expected)} {over}; of the {points(found)} measured {on} a part is luck."


def _untested(gate: Mapping[str, Any]) -> str:
    said = str(gate.get("says")).rstrip(".")
    unspent = " Nothing to test, no budget spent." if gate.get("cause") == "nothing_learnt" and not gate.get("level") else ""
    return f"{said[:1].upper()}{said[1:]}.{unspent}"


def _refused(gate: Mapping[str, Any]) -> str:
    why = "; ".join(map(str, gate.get("reasons") or ())) or "the record does not say why"
    said = gate.get("says") or _difference(gate) or why
    return f"{'Not promoted yet' if gate.get('cause') == 'waits' else 'Not promoted'}: {str(said).rstrip('.')}."


def _difference(gate: Mapping[str, Any]) -> str:
    """What a record of an earlier version, without a cause, says of the difference."""
    if gate.get("difference") is None:
        return ""
    return measured(gate["difference"], int(gate.get("pairs") or 0), str(gate.get("baseline", "the baseline")))


def _interval(gate: Mapping[str, Any]) -> list[str]:
    ends, level = gate.get("interval"), gate.get("level")
    if not ends:
        return []
    sure = f" ({min(100 * (1 - 2 * level), 99.99):.4g}% confidence)" if level else ""
    missing = sum((gate.get("missing") or {}).values())
    more = [f"{missing:,} episodes without a score count at their worst"] if missing else []
    if (gate.get("components") or math.inf) < (pairs := int(gate.get("pairs") or 0)):
        more.append(f"what belongs together makes {pairs:,} tasks tell as much as {gate['effective_components']:,.0f}")
    said = "; ".join([f"The true difference lies between {points(ends[0])} and {points(ends[1])} points{sure}", *more])
    return [f"{said}."]


def _changes(gate: Mapping[str, Any]) -> list[str]:
    gained, lost = gate.get("gained"), gate.get("lost")
    if gained is None or lost is None:
        return []
    return [f"It gains {tasks(gained)} and loses {lost:,}."]


def _may_fall(gate: Mapping[str, Any]) -> list[str]:
    """Of a promotion: the families, and greedy success, that may fall by the margin for all that is known."""
    found = (str(reason) for reason in gate.get("reasons") or () if str(reason).startswith("not ruled out"))
    return [f"{reason[:1].upper()}{reason[1:]}." for reason in found] if gate.get("not_ruled_out") else []


def _to_do(gate: Mapping[str, Any]) -> list[str]:
    advice, lost = gate.get("advice"), gate.get("lost")
    if not advice and gate.get("verdict") == "promoted":
        advice = f"read the {tasks(lost)} that it lost (dashboard, Gate)" if lost else "nothing; the next run has to beat it"
    return [f"To do: {str(advice).rstrip('.')}."] if advice else []
