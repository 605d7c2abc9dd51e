"""Review: trajectories worth a look, labels and what they say of the graders, and the decision on a promotion that waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.core.errors import InputError
from tracewheel.core.run_record import RunRecord
from tracewheel.dashboard.episodes import one_trajectory
from tracewheel.dashboard.forms import leads_to, read_form, remembered
from tracewheel.dashboard.library import NotThere
from tracewheel.dashboard.pages.common import crumbs_of, run_of
from tracewheel.dashboard.pages.trajectory import environment_tools
from tracewheel.dashboard.places import NO_PART, source_at
from tracewheel.dashboard.review import REASONS, has_trajectory, labels_at, queue_of, scores_at
from tracewheel.dashboard.sources import PARTS, sources_of
from tracewheel.dashboard.transcript import transcript_of
from tracewheel.dashboard.view import Crumb, View, address
from tracewheel.operations.approval import DECISIONS, approval_of
from tracewheel.operations.label_agreement import between_people, calibrate
from tracewheel.operations.labels import LABELS, WITHDRAWN, Label, add_label, counts, labels_of

router = APIRouter()
MOST_SHOWN = 100
# Carries a decision out: run, decision, who, note; raises a TracewheelError where it cannot.
Decide = Callable[[RunRecord, str, str, str], Any]


@router.get("/runs/{place}/{run_id}/review")
def review(request: Request, place: str, run_id: str) -> Response:
    """The queue, the labels and the decision of a run."""
    view: View = request.app.state.view
    run, row = run_of(request, place, run_id)
    labels = labels_of(run.record.path)
    several, agreeing = between_people(labels)
    return view.page(
        request,
        "review.html",
        run=row,
        crumbs=crumbs_of(row, Crumb("Review")),
        approval=approval_of(run.record.path),
        gate=run.gate,
        decides=request.app.state.decide is not None,
        folder=run.record.path,
        queue=queue_of(run),
        reasons=REASONS,
        labels=labels[::-1][:MOST_SHOWN],
        counts=counts(labels),
        by_place=by_place(labels),
        agreement=calibrate(labels, scores_at(run, labels)),
        several=several,
        agreeing=agreeing,
        sources={(one.entry, one.part): one.label for one in sources_of(run)},
        who=remembered(request),
        choices=LABELS,
    )


@router.get("/runs/{place}/{run_id}/review/{entry}/{part}/{trajectory}")
def one(request: Request, place: str, run_id: str, entry: str, part: str, trajectory: str) -> Response:
    """The form for one trajectory, with what people have said of it."""
    view: View = request.app.state.view
    run, row = run_of(request, place, run_id)
    part = part if part in PARTS else ""
    where = _existing(run, entry, part, trajectory)
    crumbs = crumbs_of(row, Crumb("Review", address("runs", place, run_id, "review")), Crumb(trajectory))
    labels = labels_at(run, entry, part, trajectory)
    score = scores_at(run, [Label(entry, part, trajectory, "", "")]).get((entry, part, trajectory))
    return view.page(
        request,
        "review_one.html",
        run=row,
        crumbs=crumbs,
        source=where,
        part_name=part or NO_PART,
        trajectory=trajectory,
        labels=labels,
        score=score,
        steps=transcript_of(one_trajectory(where, trajectory), environment_tools(run)),
        why=request.query_params.get("why", ""),
        who=remembered(request),
        choices=LABELS,
        withdrawn=WITHDRAWN,
    )


@router.post("/runs/{place}/{run_id}/label")
async def label(request: Request, place: str, run_id: str) -> Response:
    """Take a label; leads back to the review, or to the trajectory."""
    view: View = request.app.state.view
    fields = await read_form(request, view.access)
    run = view.library.run(place, run_id)
    part = fields.get("part", "")
    said = Label(
        entry=fields.get("entry", ""),
        part=part if part in PARTS else "",
        trajectory=fields.get("trajectory", ""),
        label=fields.get("label", ""),
        who=fields.get("who", ""),
        note=fields.get("note", ""),
        why=fields.get("why", "") if fields.get("why") in REASONS else "",
    )
    await run_in_threadpool(_keep, run, said)
    return leads_to(address("runs", place, run_id, "review"), said.who)


@router.post("/runs/{place}/{run_id}/decision")
async def decision(request: Request, place: str, run_id: str) -> Response:
    """Take the decision on a promotion that waits, and have it carried out."""
    view: View = request.app.state.view
    fields = await read_form(request, view.access)
    run = view.library.run(place, run_id)
    decide: Decide | None = request.app.state.decide
    if decide is None:
        raise InputError("this dashboard cannot move the champion: use `tracewheel champion approve`")
    said, who = fields.get("decision", ""), fields.get("who", "")
    if said not in DECISIONS:
        raise InputError(f"decision {said!r}: give {' or '.join(DECISIONS)}")
    await run_in_threadpool(decide, run.record, said, who, fields.get("note", ""))
    return leads_to(address("runs", place, run_id, "review"), who)


def by_place(labels: list[Label]) -> dict[tuple[str, str, str], list[Label]]:
    """Trajectory to what people say of it."""
    found: dict[tuple[str, str, str], list[Label]] = {}
    for each in labels:
        found.setdefault(each.place, []).append(each)
    return found


def _keep(run: FinishedRun, said: Label) -> None:
    _existing(run, said.entry, said.part, said.trajectory)
    add_label(run.record.path, said)


def _existing(run: FinishedRun, entry: str, part: str, trajectory: str) -> Any:
    source = source_at(run, entry, part or NO_PART)
    if not has_trajectory(source, trajectory):
        raise NotThere(f"{source.label} has no trajectory {trajectory!r}")
    return source
