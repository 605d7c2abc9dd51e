"""A run: its road, curves, gate, findings, costs and settings, and how it stands while it goes on."""

from __future__ import annotations

import contextlib
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.run_record import loops_of
from tracewheel.core.run_state import NEXT
from tracewheel.dashboard import findings, road
from tracewheel.dashboard.charts import axis_of
from tracewheel.dashboard.curves import OF_PROGRAMS, learning_curves, rubric_rows
from tracewheel.dashboard.measured import Evaluation, evaluations_of, held_out
from tracewheel.dashboard.pages.candidates import confirmation_of
from tracewheel.dashboard.pictures import road_picture
from tracewheel.dashboard.progress import below, certificates_of, least_of, progress_of
from tracewheel.dashboard.run_rows import RunRow
from tracewheel.dashboard.sources import stored_sources
from tracewheel.dashboard.task_matrix import tasks_of
from tracewheel.dashboard.view import Ask, Tab, address, page
from tracewheel.evaluation.wording import in_words
from tracewheel.operations.intake_record import sentences
from tracewheel.report.finished_run import FinishedRun
from tracewheel.report.results import AFTER

FIRST = 3  # curves that are open; the others are behind a click


@page("/runs/{place}/{run_id}", "run.html", tab=Tab("Overview", "o", 1, in_file=True))
def overview(ask: Ask) -> dict[str, Any]:
    """The first page of a run."""
    run, row = ask.run, ask.row
    evaluations = evaluations_of(run)
    results, families = findings.results_for(run, evaluations), findings.family_differences(run)
    changes, earlier = findings.changes_of(run), findings.earlier_run(run, _before(ask))
    after = results.policy(AFTER)
    return {
        **_moving(run, row, evaluations),
        "in_file": ask.in_file,
        "headline": findings.headline(results),
        "warnings": _warnings(run),
        "splits": " ".join((run.summary.get(name) or {}).get("says", "") for name in ("splits", "held_out_shared")).strip(),
        "aim": findings.aim_of(run, after),
        "gate": run.gate,
        "verdict": in_words(run.gate) if run.gate else [],
        "summary": run.summary,
        "results": results,
        "after": after,
        "floor": run.summary.get("constant_policy") or {},
        "evaluated": {name: one.entry for name, one in held_out(evaluations).items()},
        "rubrics": rubric_rows(run, held_out(evaluations)),
        "families": families,
        "candidate": confirmation_of(ask.desk.library.place(ask.path["place"]), run.run_id),
        "axis": axis_of(_ends(families, run.gate)),
        "changes": changes,
        "prompts": {name: str(task["prompt"]) for name, task in tasks_of(run, "held_out").items()} if changes else {},
        "funnel": road.funnel_of(run),
        "findings": findings.findings_of(run, stored_sources(run)),
        "graders": findings.graders_of(run),
        "settings": findings.settings_of(run),
        "earlier": earlier and (earlier[0], earlier[1].run_id),
        "settings_changed": findings.settings_changed(run, earlier[1]) if earlier else [],
        "lineage": findings.lineage_of(run),
    }


@page("/runs/{place}/{run_id}/live", "live.html")
def live(ask: Ask) -> dict[str, Any]:
    """How a run stands, for the pages that look again every other second; they are loaded anew when it has ended."""
    headers = {} if ask.row.is_running or "hx-request" not in ask.request.headers else {"HX-Refresh": "true"}
    if ask.target == "moving":
        return {"template": "moving.html", "headers": headers, **_moving(ask.run, ask.row, evaluations_of(ask.run))}
    return {"headers": headers, "progress": progress_of(ask.run)}


def _moving(run: FinishedRun, row: RunRow, evaluations: list[Evaluation]) -> dict[str, Any]:
    """What of the page changes while a run goes on."""
    progress, folders, least = progress_of(run), loops_of(run.record.path), least_of(run)
    stations = road.stations_of(run, evaluations, progress, is_running=row.is_running)
    chosen = run.summary.get("best_iteration")
    curves = {name: learning_curves(run, folder, evaluations, chosen) for name, folder in folders.items()}
    certificates = {name: certificates_of(run, folder) for name, folder in folders.items()}
    return {
        "progress": progress,
        "roads": [road_picture(stations, address("runs", row.place, row.run_id), columns) for columns in (4, 1)],
        "curves": {name: [one for one in found if one.title not in OF_PROGRAMS] for name, found in curves.items()},
        "fidelity": {name: found for name, found in certificates.items() if found},
        "fidelity_curves": {name: [one for one in found if one.title in OF_PROGRAMS] for name, found in curves.items()},
        "unfaithful": {name: below(found, least) for name, found in certificates.items()},
        "least_fidelity": least,
        "first": FIRST,
        "advice": NEXT.get(row.state, ""),
    }


def _warnings(run: FinishedRun) -> list[str]:
    """What puts the run's figures in doubt, which tasks were lost, and what was left out of its logs."""
    leaks, found = run.summary.get("leaks"), []
    if leaks:
        found.append(f"The splits leak, and curation.allow_leak allowed it: every figure of this run is in doubt. {leaks}")
    found += [said for counts in (run.summary.get("lost_tasks") or {}).values() if (said := counts.get("says"))]
    if run.summary.get("intake"):
        with contextlib.suppress(KeyError, TypeError, AttributeError, DataError):  # of another version
            found += sentences(run.summary["intake"])
    return found


def _before(ask: Ask) -> str:
    row = ask.row
    earlier = (one for one in ask.desk.rows.all() if one.place == row.place and one.started < row.started)
    return next((one.run_id for one in earlier), "")


def _ends(families: dict[str, Any], gate: dict[str, Any]) -> list[float | None]:
    rows = families.get("rows") or []
    values = [end for row in rows for end in (row["difference"], *(row["interval"] or ()))]
    values += (gate.get("families") or {}).values()
    return [*values, gate.get("difference"), *(gate.get("interval") or ())]
