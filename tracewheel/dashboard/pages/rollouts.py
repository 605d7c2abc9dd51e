"""The rollouts of a run: at which step episodes fail, flaws, tools, stop reasons, parts of the reward, diversity."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.run_record import loops_of
from tracewheel.dashboard.curves import part_curves, rollout_curves
from tracewheel.dashboard.measured import iterations_of
from tracewheel.dashboard.rollout_digest import BUDGET, Digest, digests_within, together
from tracewheel.dashboard.sources import Source, stored_sources
from tracewheel.dashboard.view import Ask, Tab, page
from tracewheel.report.finished_run import FinishedRun
from tracewheel.scoring.flaws import offered_tools

MOST_STEPS, MOST_TOOLS = 20, 25


@page("/runs/{place}/{run_id}/rollouts", "rollouts.html", part="analysis", tab=Tab("Rollouts", "a", 5, in_file=True))
def rollouts(ask: Ask) -> dict[str, Any]:
    """What went on in the rollouts, of all iterations or of some (`from`, `to`)."""
    every = [(one.iteration, one) for one in stored_sources(ask.run) if one.kind == "rollout" and one.iteration is not None]
    numbers = sorted({number for number, _ in every})
    first, last = (ask.whole(name, numbers[at] if numbers else 0) for name, at in (("from", 0), ("to", -1)))
    chosen = [source for number, source in every if first <= number <= last]
    # The last iterations come first: they are what a reader asks about, should the others take longer. A file waits for all.
    tools = _tools(ask.run)
    digests = digests_within(chosen[::-1], tools, float("inf") if ask.in_file else BUDGET)
    by_iteration: dict[int, list[Digest]] = {}
    for source, found in digests.items():
        by_iteration.setdefault(source.iteration or 0, []).append(found)
    summed = {number: together(found) for number, found in sorted(by_iteration.items())}
    iterations = [one for folder in list(loops_of(ask.run.record.path).values())[:1] for one in iterations_of(ask.run, folder)]
    total = together(digests.values())
    return {
        "curves": rollout_curves(summed, iterations),
        "parts": part_curves(iterations),
        "total": total,
        "waiting": len(chosen) - len(digests),
        "sources": chosen,
        "numbers": numbers,
        "first": first,
        "last": last,
        "tools_known": tools is not None,
        "steps": _steps(total),
        "examples": _examples(total, digests),
        "tools": [
            {"name": name, "calls": calls, "errors": total.errors[name], "invented": name in total.invented}
            for name, calls in total.calls.most_common(MOST_TOOLS)
        ],
        "by_iteration": summed,
    }


def _tools(run: FinishedRun) -> frozenset[str] | None:
    try:
        kind = (run.settings.get("environment") or {}).get("kind")
    except (DataError, OSError):
        return None
    # Only a built-in environment is asked: one of a user's own would run code of theirs here.
    return offered_tools(kind) if isinstance(kind, str) and ":" not in kind and "/" not in kind else None


def _steps(total: Digest) -> list[dict[str, Any]]:
    """For each step: failures that first err there, failures that part from a success there, and episodes that end there."""
    failed, solved = Counter[int](), Counter[int]()
    for outcome, counts in total.lengths.items():
        if outcome in ("failed", "partial"):
            failed.update(counts)
        elif outcome == "solved":
            solved.update(counts)
    parted = Counter({step + 1: count for step, count in total.parted.items()})
    trouble = Counter({step: count for step, count in total.first_trouble.items() if step})
    last = min(MOST_STEPS, max([0, *failed, *solved, *parted, *trouble]))
    names = {"parted": parted, "trouble": trouble, "failed": failed, "solved": solved}
    return [{"step": step, **{name: counts[step] for name, counts in names.items()}} for step in range(1, last + 1)]


def _examples(total: Digest, digests: dict[Source, Digest]) -> dict[str, list[tuple[str, Source]]]:
    where = {name: source for source, found in digests.items() for names in found.examples.values() for name in names}
    return {kind: [(name, where[name]) for name in names if name in where] for kind, names in total.examples.items()}
