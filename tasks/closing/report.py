"""The last stage: the report, the summary, and what MLflow keeps of both."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import prefect
from prefect.cache_policies import NO_CACHE

from tasks.closing.lineage import write_results
from tasks.closing.outcome import Outcome
from tasks.closing.summary import costs, estimates, harder_differences
from tasks.engine.artifacts import publish_summary
from tasks.engine.run import Run
from tasks.records.doctor import stored_findings
from tasks.records.evidence import POSTERIOR_FILE, remember
from tasks.records.gate_ledger import began_with
from tasks.records.split_chain import remember_splits, shared_held_out
from tracewheel.core import stopping
from tracewheel.core.files import read_json
from tracewheel.core.run_record import SUMMARY_FILE, RunRecord
from tracewheel.core.store import produce_whole, write_whole
from tracewheel.core.types import canonical_json
from tracewheel.curation.curated_folder import QUALITY_FILE
from tracewheel.curation.quality import run_funnel
from tracewheel.dashboard.files import export_runs, write_quality_page
from tracewheel.evaluation.changes import CHANGES_FILE, changed_tasks, noise_floor
from tracewheel.evaluation.constant_policy import best_constant_policy
from tracewheel.evaluation.gate import GATE_FILE
from tracewheel.evaluation.pareto import pareto_points
from tracewheel.learner.auto import says
from tracewheel.operations.approval import approval_of
from tracewheel.operations.intake_record import INTAKE_FILE
from tracewheel.report.cost import cost_of_run
from tracewheel.report.results import results_of
from tracewheel.report.run_note import run_note

PAGE_FILE = "report.html"


@prefect.task(name="write_report", cache_policy=NO_CACHE)
def write_report(run: Run, outcome: Outcome, model_version: str) -> dict[str, Any]:
    """Write the report and the summary; returns the summary."""
    weights, learned = outcome.policies["rl"].weights, outcome.learned
    assert weights is not None
    kept = run.record.path / weights.name
    produce_whole(kept, lambda out: shutil.copytree(weights, out, dirs_exist_ok=True))
    summary: dict[str, Any] = {
        "run_id": run.record.run_id,
        "name": run.config.name,
        "gate": outcome.gate,
        **costs(run.used),
        "wall_seconds": round(time.monotonic() - outcome.started, 2),
        "best_iteration": learned.best.iteration,
        "rollouts": learned.rollouts,
        "guard": [event.to_record() for event in learned.guard],
        "model_version": model_version,
        weights.name: str(kept),
        "report": str(run.record.path / PAGE_FILE),
        "mlflow_run": run.tracking.mlflow_run if run.tracking else None,
        "mlflow_uri": run.config.tracking.uri,
    }
    schedule = run.config.schedule
    prices = (schedule.cost_per_hour, schedule.cost_per_million_tokens)
    summary["worth"] = cost_of_run(summary, outcome.gate, prices, schedule.currency)
    approval, leaks = approval_of(run.record.path), outcome.curated.result["leaks"]
    held_out = {name: splits["held_out"].path for name, splits in outcome.evaluations.items()}
    baseline, sure = held_out[outcome.gate["baseline"]], run.config.gate.confidence
    if (run.record.path / INTAKE_FILE).is_file():
        summary["intake"] = read_json(run.record.path / INTAKE_FILE)
        summary["funnel"] = run_funnel(outcome.curated.result, summary["intake"])
    summary["splits"] = outcome.curated.result.get("split_ledger")
    where_known = {
        "approval": approval and approval.to_record(),
        "candidate": outcome.candidate or began_with(run, run.record.started() or {}),
        "versions": (outcome.curated.result.get("versions") or {}).get("says"),
        "held_out_shared": shared_held_out(run, outcome.curated),
        "leaks": leaks["says"] if leaks["found"] else None,
        "damaged": run.record.damaged,
        "rate_trials": learned.rate_trials,
        "algorithm": says(learned.updates[1]) if run.config.learner.kind == "auto" and learned.updates else None,
        "lost_tasks": learned.rescue,
        "pareto": [point.to_record() for point in pareto_points(learned.objectives)],
        "noise_floor": outcome.repeated and noise_floor(baseline, outcome.repeated.path, confidence=sure),
    }
    summary |= {name: value for name, value in where_known.items() if value}
    summary["constant_policy"] = best_constant_policy(run.config.evaluation.rubric or run.config.rubric, outcome.curated.path)
    changes = run.record.write(CHANGES_FILE, changed_tasks(held_out["rl"], baseline))
    run.record.write(GATE_FILE, outcome.gate)
    write_results(run, outcome, summary)
    data = results_of(
        outcome.curated.path,
        {name: [entry.path for entry in splits.values()] for name, splits in outcome.evaluations.items()},
        pass_at=run.config.evaluation.pass_at,
    )
    figures = estimates(data.policies)
    summary |= {"n_held_out": data.n_held_out, "n_harder": data.n_harder}
    summary |= {name: {key: one.value if one else None for key, one in of.items()} for name, of in figures.items()}
    summary["validation"] = learned.validation
    summary["intervals"] = {
        name: {key: [one.low, one.high] if one else None for key, one in of.items()} for name, of in figures.items()
    }
    summary["pass_at"] = {row.key: {k: one.value for k, one in row.pass_at.items()} for row in data.policies}
    summary["harder_differences"] = harder_differences(outcome.evaluations)
    export_runs([run.record], run.record.path / PAGE_FILE, ending=summary)
    write_quality_page(read_json(outcome.curated.path / QUALITY_FILE), run.record.path)
    note = run_note(summary, read_json(changes), stored_findings(run.record))
    if not publish_summary(summary, note):
        run.reporter.say("Prefect's pages have neither the table nor the verdict; the report has both")
    if run.record.summary is None:
        write_whole(Path(run.config.work_dir) / POSTERIOR_FILE, canonical_json(outcome.sampler) + "\n")
        start = run.record.started() or {}
        remember(run, outcome.traces, outcome.curated, start.get("evidence"))
        remember_splits(run, outcome.traces, outcome.curated, start.get("splits"))
    run.record.write(SUMMARY_FILE, summary)
    stopping.done()
    return summary


def told_by_mlflow(record: RunRecord) -> dict[str, Any]:
    """What was put into the summary when the run was logged."""
    summary = record.summary or {}
    return {name: summary[name] for name in ("mlflow_run", "model_version", "mlflow_waiting") if name in summary}
