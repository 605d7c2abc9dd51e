"""Review: trajectories worth a look, labels and what they say of the graders, and the decision on a promotion that waits."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tracewheel.core.errors import InputError
from tracewheel.dashboard.episodes import has_trajectory, one_trajectory
from tracewheel.dashboard.guard import leads_to, read_form, remembered
from tracewheel.dashboard.library import NotThere
from tracewheel.dashboard.review import REASONS, labels_at, queue_of, scores_at
from tracewheel.dashboard.sources import NO_PART, PARTS, Source, source_at, sources_of
from tracewheel.dashboard.transcript import tools_of_run, transcript_of
from tracewheel.dashboard.view import Ask, Crumb, Tab, page
from tracewheel.evaluation.wording import in_words
from tracewheel.operations.approval import DECISIONS, approval_of
from tracewheel.operations.labels import LABELS, WITHDRAWN, Label, add_label, between_people, calibrate, counts, labels_of
from tracewheel.report.finished_run import FinishedRun

MOST_SHOWN = 100


@page("/runs/{place}/{run_id}/review", "review.html", tab=Tab("Review", "v", 8, in_file=True))
def review(ask: Ask) -> dict[str, Any]:
    """The queue, the labels and the decision of a run."""
    run = ask.run
    labels = labels_of(run.record.path)
    by_place: dict[tuple[str, str, str], list[Label]] = {}
    for each in labels:
        by_place.setdefault(each.place, []).append(each)
    several, agreeing = between_people(labels)
    return {
        "approval": approval_of(run.record.path),
        "verdict": in_words(run.gate),
        "decides": ask.desk.decide is not None,
        "folder": run.record.path,
        "queue": queue_of(run),
        "reasons": REASONS,
        "labels": labels[::-1][:MOST_SHOWN],
        "counts": counts(labels),
        "by_place": by_place,
        "agreement": calibrate(labels, scores_at(run, labels)),
        "several": several,
        "agreeing": agreeing,
        "sources": {(one.entry, one.part): one.label for one in sources_of(run)},
        "who": remembered(ask.request),
    }


@page("/runs/{place}/{run_id}/review/{entry}/{part}/{trajectory}", "review_one.html")
def one(ask: Ask) -> dict[str, Any]:
    """The form for one trajectory, with what people have said of it."""
    entry, trajectory = ask.path["entry"], ask.path["trajectory"]
    part = ask.path["part"] if ask.path["part"] in PARTS else ""
    where = _existing(ask.run, entry, part, trajectory)
    score = scores_at(ask.run, [Label(entry, part, trajectory, "", "")]).get((entry, part, trajectory))
    return {
        "crumbs": [Crumb("Review", ask.address("review")), Crumb(trajectory)],
        "source": where,
        "part_name": part or NO_PART,
        "trajectory": trajectory,
        "labels": labels_at(ask.run, entry, part, trajectory),
        "score": score,
        "steps": transcript_of(one_trajectory(where, trajectory), tools_of_run(ask.run)),
        "why": ask.query.get("why", ""),
        "who": remembered(ask.request),
        "choices": LABELS,
        "withdrawn": WITHDRAWN,
    }


async def label(request: Request) -> Response:
    """Take a label; leads back to the review."""
    ask = Ask(request)
    fields = await read_form(request, ask.desk.access)
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
    await run_in_threadpool(_keep, ask.run, said)
    return leads_to(ask.address("review"), said.who)


async def decision(request: Request) -> Response:
    """Take the decision on a promotion that waits, and have it carried out."""
    ask = Ask(request)
    fields = await read_form(request, ask.desk.access)
    run, decide = ask.run, ask.desk.decide
    if decide is None:
        raise InputError("this dashboard cannot move the champion: use `tracewheel champion approve`")
    said, who = fields.get("decision", ""), fields.get("who", "")
    if said not in DECISIONS:
        raise InputError(f"decision {said!r}: give {' or '.join(DECISIONS)}")
    await run_in_threadpool(decide, run.record, said, who, fields.get("note", ""))
    return leads_to(ask.address("review"), who)


FORMS = (
    Route("/runs/{place}/{run_id}/label", label, methods=["POST"]),
    Route("/runs/{place}/{run_id}/decision", decision, methods=["POST"]),
)


def _keep(run: FinishedRun, said: Label) -> None:
    _existing(run, said.entry, said.part, said.trajectory)
    add_label(run.record.path, said)


def _existing(run: FinishedRun, entry: str, part: str, trajectory: str) -> Source:
    source = source_at(run, entry, part or NO_PART)
    if not has_trajectory(source, trajectory):
        raise NotThere(f"{source.label} has no trajectory {trajectory!r}")
    return source
