"""The candidate: a challenger that is not yet proven, and keeps its evidence from night to night.

A challenger that passes the screen on the night's held-out tasks waits as candidate. Its confirmation plays it beside the
policy to beat on fresh tasks, those of the reserve on which it was not screened, and looks after each night at all of them
together, by the gate's own conditions. A confirmation has one level, which its looks spend by a function of the share of the
planned tasks that they see (Lan and DeMets 1983, for O'Brien and Fleming's boundary); `docs/gate.md` derives the error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

from tracewheel.config import GateConfig
from tracewheel.core.files import read_table
from tracewheel.curation.curated_folder import RESERVED_NIGHTS
from tracewheel.evaluation.error_budget import ANOTHER_PLAN
from tracewheel.evaluation.gate import Verdict, decide
from tracewheel.evaluation.paired_outcomes import RESULTS_FILE

SCREEN = 0.05  # the level of the screen, which decides only what is played further
NIGHTS = RESERVED_NIGHTS
WAITING, PROMOTED, DROPPED, REPLACED, ENDED = "waiting", "promoted", "dropped", "replaced", "ended"
Nights = Sequence[tuple[Path, Path]]


def passes_screen(gate: dict[str, Any]) -> bool:
    """Whether a refused challenger is worth confirming: it lacks nothing but evidence, and has some."""
    return gate["cause"] == "too_few_tasks" and gate["p_value"] <= SCREEN


def spent(level: float, share: float) -> float:
    """The part of a confirmation's level that is spent once a share of its planned tasks is seen.

    2 - 2 Phi(z / sqrt(share)) with z the normal quantile at level / 2: little at first, all at the end.
    """
    if level <= 0.0 or share <= 0.0:
        return 0.0
    normal = NormalDist()
    return 2.0 * normal.cdf(normal.inv_cdf(level / 2) / math.sqrt(min(share, 1.0)))


def confirm(
    config: GateConfig,
    nights: Nights,
    *,
    level: float,
    before: float,
    planned: int,
    baseline_name: str,
    false_accepts: float | None = None,
) -> dict[str, Any]:
    """Look at a candidate's evidence.

    Args:
        config: The section `gate`.
        nights: Evaluations of the candidate and of the policy to beat, on each night's tasks, which are disjoint.
        level: Of the whole confirmation.
        before: What earlier looks have spent of it.
        planned: Tasks at which it is wholly spent.
        baseline_name: Name of the policy to beat.
        false_accepts: As in `gate.decide`.

    Returns:
        `state` (waiting, promoted or dropped) and `why`, `gate` (the verdict's record), `spent` by now, and for the record of
        the night `tasks`, `difference`, `interval`, `p_value`, `level` and `boundary`: the mean difference that would have
        been promoted.

    Raises:
        DataError: an evaluation is missing or damaged.
    """
    challenger, champion = (_together([pair[side] for pair in nights]) for side in (0, 1))
    last = len(nights) >= NIGHTS
    now = spent(level, 1.0 if last else len(challenger) / planned)
    at = max(0.0, now - before)
    verdict = decide(config, challenger, champion, baseline=baseline_name, level=at, false_accepts=false_accepts)
    state, why = _state(verdict, last=last)
    z = -NormalDist().inv_cdf(at) if at > 0.0 else math.inf
    boundary = z * verdict.spread / math.sqrt(verdict.pairs) if verdict.spread and at > 0.0 else None
    return {
        "state": state,
        "why": why,
        "gate": verdict.to_record(),
        "spent": max(now, before),
        "tasks": verdict.pairs,
        "difference": verdict.difference,
        "interval": verdict.interval,
        "p_value": verdict.p_value,
        "level": at,
        "boundary": boundary,
    }


def waits(verdict: dict[str, Any], instead: bool) -> dict[str, Any]:
    """The record of a verdict whose challenger becomes the candidate, or takes the place of one (`instead`)."""
    points = f"{100 * (verdict['difference'] or 0.0):+.1f} points against {verdict['baseline']} on {verdict['pairs']} tasks"
    says = f"not proven yet: {points}; the challenger {'takes the place of the candidate' if instead else 'waits as candidate'}"
    advice = (
        f"nothing: the next {NIGHTS} runs play it beside the policy to beat on fresh tasks, and train on from it meanwhile; "
        "the first that proves it promotes it"
    )
    reasons = [] if instead else verdict["reasons"]
    return {**verdict, "verdict": "refused", "reasons": reasons, "cause": "waits", "says": says, "advice": advice}


def cannot_wait(verdict: dict[str, Any]) -> dict[str, Any]:
    """The record of a verdict whose challenger is better than the candidate, and finds no level or no fresh tasks."""
    says = "the challenger looks better than the candidate, but no error budget, or too few fresh tasks, are left to confirm it"
    return {**verdict, "verdict": "refused", "reasons": [], "cause": "no_budget", "says": says, "advice": ANOTHER_PLAN}


def _together(folders: Sequence[Path]) -> Any:
    import pandas

    return pandas.concat([read_table(folder / RESULTS_FILE) for folder in folders], ignore_index=True)


def _state(verdict: Verdict, *, last: bool) -> tuple[str, str]:
    points, tasks = 100 * (verdict.difference or 0.0), verdict.pairs
    found = f"{points:+.1f} points against {verdict.baseline} on {tasks} fresh tasks"
    if verdict.promoted:
        return PROMOTED, f"proven: {found}"
    if points <= 0.0:
        return DROPPED, f"not better: {found}"
    if verdict.cause not in ("too_few_tasks", "no_budget", "unscored"):
        return DROPPED, f"{found}: {verdict.says}"
    if last:
        return DROPPED, f"not proven in {NIGHTS} nights: {found}"
    return WAITING, f"not proven yet: {found}"
