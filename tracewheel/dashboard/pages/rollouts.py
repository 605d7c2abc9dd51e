"""The rollouts of a run: at which step episodes fail, flaws, tools, stop reasons, parts of the reward, diversity."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.core.errors import DataError
from tracewheel.dashboard import bars
from tracewheel.dashboard.measured import iterations_of, loops
from tracewheel.dashboard.rollout_curves import (
    blame_curve,
    diversity_curve,
    flaw_curve,
    part_curves,
    reward_curve,
    speed_curve,
    stop_curve,
)
from tracewheel.dashboard.rollout_digest import Digest, digests_within, together
from tracewheel.dashboard.run_rows import RunRows
from tracewheel.dashboard.sources import Source, sources_of
from tracewheel.dashboard.view import Crumb, View, address
from tracewheel.report.charts import line_chart
from tracewheel.scoring.flaws import offered_tools

router = APIRouter()
MOST_STEPS, MOST_TOOLS = 20, 25


@router.get("/runs/{place}/{run_id}/rollouts")
def rollouts(request: Request, place: str, run_id: str) -> Response:
    """What went on in the rollouts, of all iterations or of some (`from`, `to`)."""
    view: View = request.app.state.view
    rows: RunRows = request.app.state.rows
    run, row = view.library.run(place, run_id), rows.of(place, run_id)
    every = [one for one in _sources(run) if one.kind == "rollout"]
    numbers = sorted({one.iteration for one in every if one.iteration is not None})
    first = _number(request.query_params.get("from"), numbers[0] if numbers else 0)
    last = _number(request.query_params.get("to"), numbers[-1] if numbers else 0)
    chosen = [one for one in every if one.iteration is not None and first <= one.iteration <= last]
    # The last iterations come first: they are what a reader asks about, should the others take longer.
    tools = _tools(run)
    digests = digests_within(chosen[::-1], tools)
    by_iteration = _by_iteration(digests)
    folders = list(loops(run).values())
    iterations = [one for folder in folders[:1] for one in iterations_of(run, folder)]
    curves = [stop_curve(by_iteration), blame_curve(by_iteration), flaw_curve(by_iteration), *(
        curve(iterations) for curve in (reward_curve, diversity_curve, speed_curve)
    )]  # fmt: skip
    total = together(digests.values())
    return view.page(
        request,
        "analysis.html" if request.headers.get("hx-target") == "analysis" else "rollouts.html",
        run=row,
        crumbs=[Crumb("Runs", "/"), Crumb(f"{row.name} {run_id}", address("runs", place, run_id)), Crumb("Rollouts")],
        bars=bars,
        line_chart=line_chart,
        curves=[curve for curve in curves if curve is not None],
        parts=part_curves(iterations),
        total=total,
        waiting=len(chosen) - len(digests),
        sources=chosen,
        numbers=numbers,
        first=first,
        last=last,
        tools_known=tools is not None,
        steps=_steps(total),
        examples=_examples(total, digests),
        tools=_tool_rows(total),
        by_iteration=by_iteration,
    )


def _sources(run: FinishedRun) -> list[Source]:
    try:
        return sources_of(run)
    except DataError:
        return []


def _tools(run: FinishedRun) -> frozenset[str] | None:
    try:
        kind = (run.settings.get("environment") or {}).get("kind")
    except (DataError, OSError):
        return None
    # Only a built-in environment is asked: one of a user's own would run code of theirs here.
    return offered_tools(kind) if isinstance(kind, str) and ":" not in kind and "/" not in kind else None


def _by_iteration(digests: dict[Source, Digest]) -> dict[int, Digest]:
    parts: dict[int, list[Digest]] = {}
    for source, found in digests.items():
        parts.setdefault(source.iteration or 0, []).append(found)
    return {number: together(found) for number, found in sorted(parts.items())}


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


def _tool_rows(total: Digest) -> list[dict[str, Any]]:
    return [
        {"name": name, "calls": calls, "errors": total.errors[name], "invented": name in total.invented}
        for name, calls in total.calls.most_common(MOST_TOOLS)
    ]


def _examples(total: Digest, digests: dict[Source, Digest]) -> dict[str, list[tuple[str, Source]]]:
    where = {name: source for source, found in digests.items() for names in found.examples.values() for name in names}
    return {kind: [(name, where[name]) for name in names if name in where] for kind, names in total.examples.items()}


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else otherwise
