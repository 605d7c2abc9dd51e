"""A run: its road, curves, gate, findings, costs and settings, and how it stands while it goes on."""

from __future__ import annotations

import contextlib
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from tracewheel.comparison.compare import costs_of
from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.core.errors import DataError
from tracewheel.core.run_state import NEXT
from tracewheel.dashboard import bars, evidence, road
from tracewheel.dashboard.fidelity import below, certificates_of, least_of
from tracewheel.dashboard.findings import findings_of
from tracewheel.dashboard.graders import graders_of
from tracewheel.dashboard.judges import rubric_rows
from tracewheel.dashboard.learning import FIRST, learning_curves
from tracewheel.dashboard.measured import HARDER, Evaluation, evaluations_of, held_out, loops, read_small
from tracewheel.dashboard.progress import progress_of
from tracewheel.dashboard.road_picture import road_picture
from tracewheel.dashboard.run_rows import RunRow, RunRows
from tracewheel.dashboard.sources import Source, sources_of
from tracewheel.dashboard.view import Crumb, View, address
from tracewheel.report.charts import line_chart
from tracewheel.report.curves import OF_PROGRAMS
from tracewheel.report.load import LABELS

router = APIRouter()
MOVING = "moving"
FIGURES = {"bars": bars, "line_chart": line_chart, "labels": LABELS}


@router.get("/runs/{place}/{run_id}")
def overview(request: Request, place: str, run_id: str) -> Response:
    """The first page of a run."""
    view: View = request.app.state.view
    rows: RunRows = request.app.state.rows
    found, row = view.library.run(place, run_id), rows.of(place, run_id)
    evaluations = evaluations_of(found)
    sources = _sources(found)
    changes = evidence.changes_of(found)
    families = evidence.family_differences(found)
    earlier = evidence.earlier_run(found, _before(rows, row))
    return view.page(
        request,
        "run.html",
        **_moving(found, row, evaluations),
        crumbs=[Crumb("Runs", "/"), Crumb(f"{row.name} {run_id}")],
        gate=found.gate,
        summary=found.summary,
        policies=_policies(found, evaluations),
        rubrics=rubric_rows(found, held_out(evaluations)),
        groups=_groups(evaluations),
        families=families,
        axis=bars.axis_of(_ends(families, found.gate)),
        changes=changes,
        funnel=road.funnel_of(found),
        findings=findings_of(found, sources),
        graders=graders_of(found),
        costs=costs_of([found]) if found.summary else {},
        settings=evidence.settings_of(found),
        earlier=earlier and (earlier[0], earlier[1].run_id),
        settings_changed=evidence.settings_changed(found, earlier[1]) if earlier else [],
        lineage=_lineage(found),
    )


@router.get("/runs/{place}/{run_id}/live")
def live(request: Request, place: str, run_id: str) -> Response:
    """How a run stands, for the pages that look again every other second; they are loaded anew when it has ended."""
    view: View = request.app.state.view
    rows: RunRows = request.app.state.rows
    found, row = view.library.run(place, run_id), rows.of(place, run_id)
    whole = request.headers.get("hx-target") == MOVING
    values = _moving(found, row, evaluations_of(found)) if whole else {"run": row, "progress": progress_of(found)}
    answer = view.page(request, "moving.html" if whole else "live.html", **values)
    if not row.is_running and request.headers.get("hx-request"):
        answer.headers["HX-Refresh"] = "true"
    return answer


def _moving(run: FinishedRun, row: RunRow, evaluations: list[Evaluation]) -> dict[str, Any]:
    """What of the page changes while a run goes on."""
    progress = progress_of(run)
    stations = road.stations_of(run, evaluations, progress, is_running=row.is_running)
    base = address("runs", row.place, row.run_id)
    chosen = run.summary.get("best_iteration")
    curves = {name: learning_curves(run, folder, evaluations, chosen) for name, folder in loops(run).items()}
    certificates = {name: certificates_of(run, folder) for name, folder in loops(run).items()}
    least = least_of(run)
    return {
        **FIGURES,
        "run": row,
        "progress": progress,
        "roads": [road_picture(stations, base, columns) for columns in (4, 1)],
        "curves": {name: [one for one in found if one.title not in OF_PROGRAMS] for name, found in curves.items()},
        "fidelity": {name: found for name, found in certificates.items() if found},
        "fidelity_curves": {name: [one for one in found if one.title in OF_PROGRAMS] for name, found in curves.items()},
        "unfaithful": {name: below(found, least) for name, found in certificates.items()},
        "least_fidelity": least,
        "first": FIRST,
        "advice": NEXT.get(row.state, ""),
    }


def _sources(run: FinishedRun) -> list[Source]:
    try:
        return sources_of(run)
    except DataError:  # it has not asked for a stored result yet
        return []


def _before(rows: RunRows, row: RunRow) -> str:
    earlier = (one for one in rows.all() if one.place == row.place and one.started < row.started)
    return next((one.run_id for one in earlier), "")


def _policies(run: FinishedRun, evaluations: list[Evaluation]) -> list[dict[str, Any]]:
    """A row for each policy: rates on held-out and harder tasks, each with its interval."""
    on = {split: held_out(evaluations, split) for split in ("held_out", HARDER)}
    summary = run.summary
    names = dict.fromkeys([*(summary.get("success") or {}), *on["held_out"], *on[HARDER]])
    found = []
    for name in names:
        ours, harder = on["held_out"].get(name), on[HARDER].get(name)
        logged = {key: ((summary.get("intervals") or {}).get(key) or {}).get(name) for key in ("success", "sampled", "harder")}
        found.append(
            {
                "name": name,
                "label": LABELS.get(name, (name.replace("_", " "), ""))[0],
                "greedy": ours.greedy if ours else None,
                "sampled": ours.sampled if ours else None,
                "harder": harder.greedy if harder else None,
                "pass_at": ours.pass_at if ours else {},
                "entry": ours.entry if ours else "",
                # Without an evaluation, as of the deployed agent, the summary's figures.
                "summary": {key: (summary.get(key) or {}).get(name) for key in logged},
                "intervals": logged,
            }
        )
    return found


def _groups(evaluations: list[Evaluation]) -> dict[str, dict[str, dict[str, Any]]]:
    """Heading to group to policy to rate."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for split, words in (("held_out", "held out"), (HARDER, "harder")):
        for policy, one in held_out(evaluations, split).items():
            for heading, groups in ((f"By family, {words}", one.families), (f"By tier, {words}", one.tiers)):
                if len(groups) > 1:
                    for name, rates in groups.items():
                        found.setdefault(heading, {}).setdefault(name, {})[policy] = rates["greedy"]
    return found


def _ends(families: dict[str, Any], gate: dict[str, Any]) -> list[float | None]:
    rows = families.get("rows") or []
    values = [end for row in rows for end in (row["difference"], *(row["interval"] or ()))]
    return [*values, gate.get("difference"), *(gate.get("interval") or ())]


def _lineage(run: FinishedRun) -> dict[str, str]:
    """The lineage in short."""
    found: dict[str, Any] = {}
    with contextlib.suppress(DataError, AttributeError, TypeError):
        lineage = run.lineage
        git, machine = lineage.get("git") or {}, (lineage.get("machine") or {}).get("kind") or {}
        found = {
            "started": lineage.get("started"),
            "commit": f"{str(git.get('commit') or '')[:12]}{' with changes' if git.get('changed') else ''}",
            "base policy": " ".join(str(part) for part in (lineage.get("base") or {}).values()),
            "machine": ", ".join(str(part) for part in (machine.get("processor"), *machine.get("gpus", ())) if part),
            "traces": ((lineage.get("datasets") or {}).get("traces") or {}).get("entry"),
            "tasks": ((lineage.get("datasets") or {}).get("curated") or {}).get("entry"),
            "chosen": (lineage.get("chosen") or {}).get("iteration") if isinstance(lineage.get("chosen"), dict) else None,
            "resumed": len(lineage.get("resumed") or ()) or None,
        }
    found["model version"] = run.summary.get("model_version")
    found["MLflow run"] = run.summary.get("mlflow_run") or read_small(run.record.path / "state.json").get("mlflow_run")
    return {name: str(value) for name, value in found.items() if value not in (None, "")}
