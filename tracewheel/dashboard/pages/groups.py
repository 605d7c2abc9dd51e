"""Groups of rollouts by iteration, and the episodes of a group side by side."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.dashboard.advantages import advantages_of, warm_up
from tracewheel.dashboard.episodes import parsed
from tracewheel.dashboard.group_rows import SORTS, group_at, group_rows, neighbours_of
from tracewheel.dashboard.library import NotThere, entry_path
from tracewheel.dashboard.pages.common import crumbs_of, one_of, run_of, whole
from tracewheel.dashboard.pages.trajectory import environment_tools
from tracewheel.dashboard.places import neighbours, rollouts_of
from tracewheel.dashboard.transcript import parts_of, transcript_of
from tracewheel.dashboard.view import Crumb, View, address

router = APIRouter()
SHOWN = 100
KINDS = ("mixed", "solved", "failed")


@router.get("/runs/{place}/{run_id}/groups")
def groups(request: Request, place: str, run_id: str) -> Response:
    """The groups of an iteration, the last one by default."""
    view: View = request.app.state.view
    run, row = run_of(request, place, run_id)
    found = rollouts_of(run)
    asked = request.query_params
    iterations = sorted(found)
    iteration = whole(asked.get("iteration"), iterations[-1] if iterations else 0)
    sort = one_of(asked.get("sort"), SORTS, "spread")
    first = whole(asked.get("from"))
    kind = one_of(asked.get("kind"), KINDS, "")
    sources = found.get(iteration, [])
    rows, count = group_rows(sources, sort, asked.get("up") is not None, first, SHOWN, kind) if sources else ([], 0)
    before, after = neighbours(iterations, iteration)
    warm_up()
    return view.page(
        request,
        "groups.html",
        run=row,
        crumbs=crumbs_of(row, Crumb("Groups")),
        iterations=iterations,
        iteration=iteration,
        before=before,
        after=after,
        sources=sources,
        rows=rows,
        found=count,
        first=first,
        page_size=SHOWN,
        sort=sort,
        sorts=list(SORTS),
        kinds=KINDS,
        asked=dict(asked),
        part="table" if request.headers.get("hx-target") == "table" else "",
    )


@router.get("/runs/{place}/{run_id}/groups/{entry}/{group}")
def group(request: Request, place: str, run_id: str, entry: str, group: str) -> Response:
    """The episodes of a group, with rewards and advantages."""
    view: View = request.app.state.view
    run, row = run_of(request, place, run_id)
    entry_path(run, entry)
    found = rollouts_of(run)
    iteration, sources = next(
        ((number, sources) for number, sources in found.items() if any(source.entry == entry for source in sources)), (0, [])
    )
    own = [source for source in sources if source.entry == entry]
    if not own:
        raise NotThere(f"{entry}: holds no rollouts")
    advantages = advantages_of(run, sources)
    tools = environment_tools(run)
    episodes = []
    for one in group_at(own, group):
        one = {
            name: parsed(value) if name in ("turns", "messages", "branches", "breakdown") else value
            for name, value in one.items()
        }
        steps = transcript_of(one, tools)
        episodes.append(one | {"steps": steps, "parts": parts_of(one["breakdown"]), "advantages": advantages.of(one["id"])})
    before, after = neighbours_of(own, group)
    return view.page(
        request,
        "group.html",
        run=row,
        crumbs=crumbs_of(
            row,
            Crumb(f"Groups of iteration {iteration}", address("runs", place, run_id, "groups", iteration=iteration)),
            Crumb(group),
        ),
        entry=entry,
        group=group,
        iteration=iteration,
        episodes=episodes,
        advantages=advantages,
        before=before,
        after=after,
    )
