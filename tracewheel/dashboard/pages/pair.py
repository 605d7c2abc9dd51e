"""Two trajectories of a run side by side."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.dashboard.pages.common import crumbs_of, run_of
from tracewheel.dashboard.pages.trajectory import environment_tools, episode_facts, others_of
from tracewheel.dashboard.pairs import aligned, how_it_differs
from tracewheel.dashboard.places import NO_PART, trajectory_at
from tracewheel.dashboard.task_matrix import one_task
from tracewheel.dashboard.transcript import parts_of, transcript_of
from tracewheel.dashboard.view import Crumb, View

router = APIRouter()


@router.get("/runs/{place}/{run_id}/pair")
def pair(request: Request, place: str, run_id: str, left: str = "", right: str = "") -> Response:
    """Two trajectories, aligned up to the first step that differs."""
    view: View = request.app.state.view
    run, row = run_of(request, place, run_id)
    sides = [_side(run, name) for name in (left, right) if name]
    rows = aligned(sides[0]["steps"], sides[1]["steps"]) if len(sides) == 2 else []
    return view.page(
        request,
        "pair.html",
        run=row,
        crumbs=crumbs_of(row, Crumb("Two trajectories")),
        sides=sides,
        rows=rows,
        differs=how_it_differs(rows),
        task=one_task(run, sides[0]["found"]["task_id"]) if sides else None,
        left=left,
        right=right,
    )


def _side(run: FinishedRun, name: str) -> dict[str, Any]:
    source, found = trajectory_at(run, name)
    tools = environment_tools(run)
    return {
        "source": source,
        "part": source.part or NO_PART,
        "found": found,
        "steps": transcript_of(found, tools),
        "parts": parts_of(found["breakdown"]),
        "facts": episode_facts(found, tools),
        "others": others_of(source, found),
    }
