"""The candidate: a challenger that is not yet proven, and keeps its evidence from night to night.

A challenger that passes the screen on the night's held-out tasks waits as candidate. Its confirmation plays it beside the
policy to beat on fresh tasks, those of the reserve on which it was not screened, and looks after each night at all of them
together, by the gate's own conditions. A confirmation has one level, which its looks spend by a function of the share of the
planned tasks that they see (Lan and DeMets 1983, for O'Brien and Fleming's boundary; derived in `benchmarks/results/gate.md`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

from tracewheel.config import GateConfig
from tracewheel.core.files import read_table
from tracewheel.curation.curated_folder import OUTCOMES_FILE, RESERVE, RESERVED_NIGHTS, load_components, load_tasks
from tracewheel.curation.splits import components
from tracewheel.evaluation.error_budget import ANOTHER_PLAN
from tracewheel.evaluation.gate import Verdict, decide
from tracewheel.evaluation.paired_outcomes import COMPONENT, RESULTS_FILE
from tracewheel.evaluation.winners import expected_gain
from tracewheel.evaluation.wording import measured

SCREEN = 0.05  # the level of the screen, which decides only what is played further
NIGHTS = RESERVED_NIGHTS
WAITING, PROMOTED, DROPPED, REPLACED, ENDED = "waiting", "promoted", "dropped", "replaced", "ended"
Nights = Sequence[tuple[Path, Path]]


def fresh_tasks(curated: Path, screens: Sequence[Path], nights: Sequence[Path] = ()) -> tuple[list[str], dict[str, str]]:
    """The tasks of the reserve that a candidate can be confirmed on, in its order.

    A task that hangs together with one of the screen, by this curation or by that of the screen, shares the luck by which the
    candidate was chosen. What a night has played is evidence already; a task that is released to training since
    (`curation.rotate`) stays so: neither of the two policies is trained any more.

    Args:
        curated: Folder that `curate` wrote.
        screens: Evaluations by whose held-out tasks the candidate and those before it were chosen.
        nights: Its evaluations on fresh tasks so far.

    Returns:
        The tasks, and the component of each task that is known.

    Raises:
        DataError: an evaluation is damaged.
    """
    import pandas

    screened, played = ([read_table(folder / RESULTS_FILE) for folder in folders] for folders in (screens, nights))
    now = pandas.DataFrame(load_components(curated).items(), columns=["task_id", COMPONENT])
    then = [table[[name for name in ("task_id", COMPONENT) if name in table]] for table in (*screened, *played)]
    links = pandas.concat([now, *then], ignore_index=True).rename(columns={COMPONENT: "task"})
    named = pandas.DataFrame({"task_id": links["task"].dropna(), "task": links["task"].dropna()})  # after one of its tasks
    users = [read_table(path, ["task_id", "session", "user"])] if (path := curated / OUTCOMES_FILE).is_file() else []
    together = components(pandas.concat([links, named, *users], ignore_index=True))
    used = {together[str(task)] for table in screened for task in table["task_id"]}
    known = {str(task) for table in played for task in table["task_id"]}
    reserve = [task.id for task in load_tasks(curated, RESERVE)]
    return [task for task in reserve if task not in known and together.get(task, task) not in used], together


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


def planned_looks(level: float, planned: int, spread: float, counts: Sequence[int]) -> list[tuple[float, float]]:
    """Standard error and level of every look of a confirmation, past and to come; nights to come are as large as those so far.

    Args:
        level: Of the whole confirmation.
        planned: Tasks at which it is wholly spent.
        spread: Standard deviation of the differences between tasks.
        counts: Tasks up to each night so far; at least one.
    """
    ahead = range(1, NIGHTS - len(counts) + 1)
    every = [*counts, *(counts[-1] + number * max(1, counts[-1] // len(counts)) for number in ahead)]
    used = [0.0, *(spent(level, 1.0 if number >= NIGHTS else n / planned) for number, n in enumerate(every, 1))]
    return [(spread / math.sqrt(n), max(0.0, now - then)) for n, (then, now) in zip(every, pairwise(used), strict=True)]


def confirm(
    config: GateConfig,
    nights: Nights,
    *,
    level: float,
    before: float,
    planned: int,
    baseline_name: str,
    together: Mapping[str, str] | None = None,
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
        together: Task to its component over all nights; by default each night's own.
        false_accepts: As in `gate.decide`.

    Returns:
        `state` (waiting, promoted or dropped) and `why`, `gate` (the verdict's record), `spent` by now, and for the record of
        the night `tasks`, `difference`, `interval`, `p_value`, `level` and `boundary`: the mean difference that would have
        been promoted.

    Raises:
        DataError: an evaluation is missing or damaged.
    """
    challenger, champion = (_together([pair[side] for pair in nights], together or {}) for side in (0, 1))
    last = len(nights) >= NIGHTS
    now = spent(level, 1.0 if last else len(challenger) / planned)
    at = max(0.0, now - before)
    verdict = decide(config, challenger, champion, baseline=baseline_name, level=at, false_accepts=false_accepts)
    if verdict.promoted and verdict.difference and verdict.spread:
        counts = list(accumulate(len(read_table(ours / RESULTS_FILE)) for ours, _ in nights))
        looks = planned_looks(level, planned, verdict.spread, counts)
        verdict = replace(verdict, expected_gain=expected_gain(verdict.difference, looks, at=len(nights) - 1))
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
    found = measured(verdict["difference"] or 0.0, verdict["pairs"], verdict["baseline"])
    says = f"{found}; it {'takes the place of the candidate' if instead else 'waits as candidate'}"
    advice = (
        f"nothing; the next {NIGHTS} runs train on from it and play it on fresh tasks, and it is promoted once it is proven"
    )
    reasons = [] if instead else verdict["reasons"]
    return {**verdict, "verdict": "refused", "reasons": reasons, "cause": "waits", "says": says, "advice": advice}


def cannot_wait(verdict: dict[str, Any]) -> dict[str, Any]:
    """The record of a verdict whose challenger is better than the candidate, and finds no level or no fresh tasks."""
    says = "the challenger looks better than the candidate, but no error budget, or too few fresh tasks, are left to confirm it"
    return {**verdict, "verdict": "refused", "reasons": [], "cause": "no_budget", "says": says, "advice": ANOTHER_PLAN}


def _together(folders: Sequence[Path], components: Mapping[str, str]) -> Any:
    import pandas

    whole = pandas.concat([read_table(folder / RESULTS_FILE) for folder in folders], ignore_index=True)
    return whole.assign(**{COMPONENT: whole["task_id"].map(components)}) if components else whole


def _state(verdict: Verdict, *, last: bool) -> tuple[str, str]:
    difference = verdict.difference or 0.0
    found = measured(difference, verdict.pairs, verdict.baseline, "fresh ")
    if verdict.promoted:
        return PROMOTED, f"proven: {found}"
    if difference <= 0.0:
        return DROPPED, f"not better: {found}"
    if verdict.cause not in ("too_few_tasks", "no_budget", "unscored"):
        return DROPPED, str(verdict.says)
    if last:
        return DROPPED, f"not proven in {NIGHTS} nights: {found}"
    return WAITING, f"not proven yet: {found}"
