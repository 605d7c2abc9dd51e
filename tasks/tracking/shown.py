"""What MLflow shows of a run, read from the run's folder: figures, tags, files, the note, and what the registry says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.closing.lineage import commit_tags, files_of
from tasks.records.doctor import ALARMS, FINDINGS_FILE, stored_findings
from tracewheel.core import run_state
from tracewheel.core.files import read_json
from tracewheel.core.run_record import CONFIG_FILE, ENTRIES_FILE, LINEAGE_FILE
from tracewheel.curation.curated_folder import HELD_OUT, QUALITY_FILE, SPLITS_FILE, VALIDATION
from tracewheel.dashboard.files import QUALITY_PAGE
from tracewheel.evaluation.changes import CHANGES_FILE
from tracewheel.evaluation.gate import GATE_FILE
from tracewheel.evaluation.graders import AUDIT_FILE
from tracewheel.evaluation.wording import gain_of
from tracewheel.operations.approval import approval_of
from tracewheel.operations.intake_record import read_intake
from tracewheel.policy.adapters import ADAPTER
from tracewheel.report.doctor.run_records import GUARD_FILE
from tracewheel.report.finished_run import EVALUATIONS, FinishedRun, StoredEntry
from tracewheel.report.run_note import run_note

LONGEST_TAG = 5000
PAGE_FILE = "report.html"
GATE_FIGURES = ("difference", "p_value", "level", "look", "gained", "lost")
STATUSES = {
    run_state.RUNNING: "RUNNING",
    run_state.STOPPED: "KILLED",
    run_state.FAILED: "FAILED",
    run_state.CRASHED: "FAILED",
}
Metrics = dict[str, float]


def entry_of(run: FinishedRun, stage: str) -> StoredEntry | None:
    """The first entry of a stage that the run asked for, where the store still has it."""
    return next(run.of_stage(stage), None) if (run.record.path / ENTRIES_FILE).is_file() else None


def evaluations_of(run: FinishedRun) -> Iterator[tuple[StoredEntry, str, str]]:
    """The evaluations that the store still has, with policy and split: those of the lineage, and validations."""
    if not (run.record.path / ENTRIES_FILE).is_file():
        return
    stored = {entry.name: entry for entry in run.of_stage(*EVALUATIONS)}
    named = set()
    for policy, splits in (lineage_of(run).get("evaluations") or {}).items():  # equal policies share an evaluation
        for split, made in splits.items():
            named.add(made["entry"])
            if made["entry"] in stored:
                yield stored[made["entry"]], policy, split
    for entry in stored.values():
        arguments = entry.made.get("arguments") or {}
        policy = (arguments.get("policy") or {}).get("policy")
        if policy and entry.name not in named and arguments.get("split") == VALIDATION and not arguments.get("repeat"):
            yield entry, policy, VALIDATION


def lineage_of(run: FinishedRun) -> dict[str, Any]:
    """The run's lineage; empty where it has none."""
    return run.lineage if (run.record.path / LINEAGE_FILE).is_file() else {}


def results(run: FinishedRun) -> Metrics:
    """The figures of the end, by their names in `report.glossary`; before the end, those of splits and audit."""
    summary, curated, audit = run.summary, entry_of(run, "curate"), run.record.path / AUDIT_FILE
    found = split_metrics(curated.metadata["result"]["split_ledger"]) if curated else {}
    found |= audit_metrics(read_json(audit)) if audit.is_file() else {}
    if summary:
        found |= _gate_metrics(summary["gate"]) | _evaluation_metrics(summary) | _cost_metrics(summary)
        if shared := summary.get("held_out_shared"):
            found["splits/held_out_shared"] = shared["shared"]
    return known(found)


def known(metrics: Mapping[str, float | None]) -> Metrics:
    """The figures that have a value."""
    return {name: float(value) for name, value in metrics.items() if value is not None}


def _gate_metrics(gate: Mapping[str, Any]) -> dict[str, float | None]:
    low, high = gate.get("interval") or (None, None)
    return {f"gate/{name}": gate.get(name) for name in GATE_FIGURES} | {"gate/interval_low": low, "gate/interval_high": high}


def _evaluation_metrics(summary: Mapping[str, Any]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for figure, name in {
        "success": "held_out/{}/greedy",
        "sampled": "held_out/{}/sampled",
        "harder": "harder/{}/greedy",
    }.items():
        found |= {f"eval/{name.format(policy)}": value for policy, value in (summary.get(figure) or {}).items()}
    for policy, rates in (summary.get("pass_at") or {}).items():
        found |= {f"eval/{HELD_OUT}/{policy}/pass_at_{k}": value for k, value in rates.items()}
    return found


def _cost_metrics(summary: Mapping[str, Any]) -> dict[str, float | None]:
    found = {f"cost/seconds/{stage}": value for stage, value in (summary.get("seconds") or {}).items()}
    found |= {f"cost/tokens/{kind}": value for kind, value in (summary.get("tokens") or {}).items()}
    found |= {f"cost/{name}": summary.get(name) for name in ("episodes", "wall_seconds")}
    if worth := summary.get("worth"):
        found |= {f"cost/{name}_per_point": value for name, value in worth["per_point"].items()}
        found["cost/money"] = worth["cost"]["money"]
    return found


def split_metrics(ledger: Mapping[str, Any]) -> dict[str, float | None]:
    """The counts of a ledger of splits."""
    counts = {name: value for name, value in ledger.items() if isinstance(value, int) and not isinstance(value, bool)}
    sides = {f"side_{side}": count for side, count in ledger["sides"].items()}
    still = {f"first_held_out_{name}": count for name, count in ledger["first_held_out"].items()}
    return {f"splits/{name}": value for name, value in (counts | sides | still).items()}


def audit_metrics(made: Mapping[str, Any]) -> dict[str, float | None]:
    """Figures of an audit of graders."""
    figures: dict[str, float | None] = {"audit/exploitable": made["exploitable"]}
    for found in made["verifiers"].values():
        name = found["kind"].replace(":", ".")
        figures[f"audit/{name}/false_accept"] = found["false_accept"]["rate"]
        figures[f"audit/{name}/false_accept_high"] = found["false_accept"]["high"]
        figures[f"audit/{name}/false_reject"] = found["false_reject"]["rate"]
        figures[f"audit/{name}/unscored"] = found["unscored"]
    names: list[str] = []
    for found in made["judges"].values():
        names.append(f"{found['kind']}.{'.'.join(found['rubrics'])}")
        name = names[-1] if names.count(names[-1]) == 1 else f"{names[-1]}.{names.count(names[-1])}"
        figures[f"audit/{name}/tells"] = found["tells"]["rate"]
        figures[f"audit/{name}/injected"] = found["injected"]["rate"]
        figures |= {f"audit/{name}/flips/{change}": rate["rate"] for change, rate in found["flips"].items()}
    return figures


def curve(run: FinishedRun) -> dict[int, Metrics]:
    """Success on the validation tasks by iteration, once the run is complete."""
    points = run.summary.get("validation") or {}
    return {int(step): known({f"eval/validation/{name}": rates[name] for name in rates}) for step, rates in points.items()}


def tags_of(run: FinishedRun) -> dict[str, str]:
    """The tags of the run's page, without `tracewheel.` before them."""
    folder, lineage, curated = run.record.path, lineage_of(run), entry_of(run, "curate")
    found: dict[str, str] = {}
    if lineage:
        found |= {"base": lineage["inputs"].get("base", ""), **commit_tags(lineage)}
    if curated:
        leaks = curated.metadata["result"]["leaks"]
        found |= {"data": curated.digest} | ({"leaks": leaks["says"]} if leaks["found"] else {})
    if alarms := [item for item in stored_findings(run.record) if item.severity in ALARMS]:
        found["doctor"] = "; ".join(f"{item.check} {item.severity}" for item in alarms)
    if (events := folder / GUARD_FILE).is_file():
        found["guard"] = "; ".join(event["sentence"] for event in read_json(events))
    if (audit := folder / AUDIT_FILE).is_file():
        found["audit"] = read_json(audit)["verdict"]
    if intake := read_intake(folder, run.work_dir):
        held = ", ".join(f"{batch['id']}: {'; '.join(batch['reasons'])}" for batch in intake["batches"])
        found |= {"held_batches": held or "none", "quarantined": f"{intake['quarantined']} of {intake['read']}"}
    if trials := run.summary.get("rate_trials"):
        found["learning_rate"] = ", ".join(f"{name} {tried['learning_rate']:.3g}" for name, tried in trials.items())
    if (approval := approval_of(folder)) and not approval.waits:
        found |= {"approval": approval.decision, "approval_by": approval.by}
        found |= {"approval_note": approval.note, "approval_at": approval.at}
    return {name: value[:LONGEST_TAG] for name, value in found.items()}


def artifacts_of(run: FinishedRun) -> Iterator[tuple[str, Path]]:
    """The files of the run's page with the folders that they go to; the lineage's stand by themselves, too."""
    folder, curated = run.record.path, entry_of(run, "curate")
    root = (CONFIG_FILE, LINEAGE_FILE, PAGE_FILE, GATE_FILE, CHANGES_FILE, FINDINGS_FILE)
    data = [folder / QUALITY_PAGE, *([curated.path / name for name in (QUALITY_FILE, SPLITS_FILE)] if curated else ())]
    places = {
        "": [folder / name for name in root],
        "lineage": files_of(folder),
        "data": data,
        "audit": [folder / AUDIT_FILE],
    }
    return ((place, path) for place, paths in places.items() for path in paths if path.is_file())


def adapters_of(run: FinishedRun) -> Iterator[tuple[str, str, Path]]:
    """Name, entry and folder of the adapters that were compared. Whole models are large: only the one registered is shown."""
    for name, policy in (lineage_of(run).get("policies") or {}).items():
        entry = policy.get("entry")
        if entry and name != "rl" and (folder := run.store / entry / ADAPTER).is_dir():
            yield name, entry, folder


def note_of(run: FinishedRun) -> str:
    """The note in Markdown on the page of a complete run and on that of its model version."""
    changes = run.record.path / CHANGES_FILE
    return run_note(run.summary, read_json(changes) if changes.is_file() else [], stored_findings(run.record))[:LONGEST_TAG]


def version_tags(run: FinishedRun) -> dict[str, str]:
    """What the registry says of a version beside its verdict: the gain, and what it was made from."""
    gate, lineage = run.summary["gate"], lineage_of(run)
    low, high = gate.get("interval") or (None, None)
    datasets, git = lineage.get("datasets") or {}, lineage.get("git") or {}
    found = {
        "gain": gain_of(gate),
        "gain_interval": f"{low:.4f} to {high:.4f}" if low is not None else None,
        "baseline": gate.get("baseline"),
        "success": (run.summary.get("success") or {}).get("rl"),
        "code": git.get("commit") and f"{git['commit']}{' and a diff' if git.get('changed') else ''}",
        "traces": (datasets.get("traces") or {}).get("digest"),
        "curated": (datasets.get("curated") or {}).get("digest"),
        "parent": (lineage.get("parent") or {}).get("run_id"),
    }
    return {
        name: (f"{value:.4f}" if isinstance(value, float) else str(value))[:LONGEST_TAG]
        for name, value in found.items()
        if value is not None
    }
