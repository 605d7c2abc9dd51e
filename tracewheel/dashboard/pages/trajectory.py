"""A trajectory, turn by turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.dashboard.advantages import Advantages, advantages_of
from tracewheel.dashboard.branches import branches_of, rows_of
from tracewheel.dashboard.episodes import Episodes, one_trajectory, parsed
from tracewheel.dashboard.forms import remembered
from tracewheel.dashboard.index.episode_facts import EpisodeFacts, facts_of, tools_of
from tracewheel.dashboard.pages.common import crumbs_of, run_of, whole
from tracewheel.dashboard.places import rollouts_of, source_at
from tracewheel.dashboard.review import labels_at
from tracewheel.dashboard.sources import Source
from tracewheel.dashboard.task_matrix import one_task
from tracewheel.dashboard.transcript import parts_of, state_changes, transcript_of
from tracewheel.dashboard.tree_picture import tree_picture
from tracewheel.dashboard.view import Crumb, View, address
from tracewheel.operations.labels import LABELS

router = APIRouter()
PROGRAM = "program"  # what a program left, in the final state: of rollout/harness/ends.py, whose imports are heavy
LANES = 4  # branches side by side


@router.get("/runs/{place}/{run_id}/episodes/{entry}/{part}/{trajectory}")
def trajectory(request: Request, place: str, run_id: str, entry: str, part: str, trajectory: str) -> Response:
    """The page of one episode."""
    view: View = request.app.state.view
    run, row = run_of(request, place, run_id)
    source = source_at(run, entry, part)
    found = one_trajectory(source, trajectory)
    task = one_task(run, found["task_id"]) or {}
    before = parsed(task.get("initial_state"))
    tools = environment_tools(run)
    first = whole(request.query_params.get("branch"))
    first = first // LANES * LANES if first < len(found["branches"]) else 0
    branches = branches_of(found, tools, first, LANES)
    return view.page(
        request,
        "trajectory.html",
        run=row,
        crumbs=crumbs_of(
            row,
            Crumb("Episodes", address("runs", place, run_id, "episodes")),
            Crumb(source.label, address("runs", place, run_id, "episodes", **_like(source))),
            Crumb(trajectory),
        ),
        source=source,
        entry=entry,
        part_name=part,
        found=found,
        task=task,
        steps=transcript_of(found, tools),
        branches=branches,
        picture=tree_picture(branches),
        rows=rows_of(found),
        first_branch=first,
        lanes_shown=LANES,
        parts=parts_of(found["breakdown"]),
        changes=state_changes(before, _world(found["final_state"])) if before else None,
        facts=episode_facts(found, tools),
        advantages=advantages_at(run, source),
        others=others_of(source, found),
        labels=labels_at(run, entry, source.part, found["id"]),
        who=remembered(request),
        choices=LABELS,
    )


def environment_tools(run: FinishedRun) -> Sequence[Mapping[str, Any]]:
    """The tools of a run's environment; empty where it cannot be built here."""
    return tools_of(str((run.settings.get("environment") or {}).get("kind") or ""))


def episode_facts(found: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> EpisodeFacts:
    """Outcome, failure kind and flaws of a trajectory, as the index has them."""
    score = {name: found.get(name) for name in ("status", "total", "breakdown")}
    messages, turns = (found[name] if isinstance(found[name], list) else [] for name in ("messages", "turns"))
    return facts_of(messages, turns, str(found["stop_reason"]), score, tools)


def advantages_at(run: FinishedRun, source: Source) -> Advantages:
    """The advantages of the iteration that a rollout belongs to."""
    if source.kind != "rollout" or source.iteration is None:
        return Advantages(why="an evaluation teaches nothing, so it has no advantages")
    return advantages_of(run, rollouts_of(run).get(source.iteration, []))


def others_of(source: Source, found: Mapping[str, Any], most: int = 32) -> list[dict[str, Any]]:
    """The other episodes of the same task in the same stored result: a group's, or further samples."""
    return Episodes([source]).rows(
        "SELECT id, sample, outcome, total, tokens FROM {episodes} WHERE task_id = ? AND id <> ? ORDER BY sample, id LIMIT ?",
        [found["task_id"], found["id"], most],
    )


def _world(state: Any) -> Any:
    """A final state without what the program itself left."""
    return {name: value for name, value in state.items() if name != PROGRAM} if isinstance(state, Mapping) else state


def _like(source: Source) -> dict[str, Any]:
    """The filters that give the episodes of a source."""
    if source.iteration is not None and source.kind == "rollout":
        return {"kind": source.kind, "iteration": source.iteration}
    return {"kind": source.kind, "policy": source.policy or None, "split": source.split or None}
