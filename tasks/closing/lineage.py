"""What a run adds to its `lineage.json` at its end, and what MLflow keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.closing.outcome import Outcome
from tasks.engine.run import Policy, Run, named
from tracewheel.core.errors import DataError, TracewheelError
from tracewheel.core.files import read_json
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.run_record import LINEAGE_FILE, LOOP_FILE, SNAPSHOT_FILE
from tracewheel.core.store import FACTS, PARTIAL, Entry, read_metadata
from tracewheel.curation.curated_folder import SPLITS_FILE
from tracewheel.evaluation.gate import GATE_FILE
from tracewheel.lineage.backward import LEARNED_FILE, learned_rows
from tracewheel.lineage.work_folder import WorkFolder
from tracewheel.policy.adapters import adapter_digests


def commit_tags(lineage: Mapping[str, Any]) -> dict[str, str]:
    """The commit of the code, marked where tracked files differ from it; empty outside a repository."""
    git = lineage["git"]
    return {"commit": f"{git['commit']}{'+changes' if git['changed'] else ''}"} if git else {}


def files_of(record: Path) -> list[Path]:
    """The files of a run's record that its lineage is made of."""
    diffs = sorted(record.glob("*.diff"))
    return [record / LINEAGE_FILE, record / SNAPSHOT_FILE, *sorted(record.glob("environment*.txt")), *diffs]


def write_results(run: Run, outcome: Outcome, summary: Mapping[str, Any]) -> None:
    """Add a run's results to its lineage: data sets, parent champion, iterations, evaluations, verdict. Equal when repeated."""
    lineage = run.record.lineage
    start = run.record.started() or {}
    lineage["parent"] = start.get("champion")
    lineage["datasets"] = {
        "traces": named(outcome.traces),
        "curated": named(outcome.curated),
        "splits": {"file": SPLITS_FILE, "sha256": digest_file(outcome.curated.path / SPLITS_FILE)},
    }
    if "outcomes" in outcome.traces.result:
        reopened = outcome.curated.result.get("reopened", [])
        lineage["datasets"]["outcomes"] = {**outcome.traces.result["outcomes"], "reopened": reopened}
    lineage["started_from"] = {name: start.get(name) for name in ("evidence", "splits")}
    loop = run.record.path / LOOP_FILE
    lineage["iterations"] = {"rl": _iterations(run, read_json(loop))} if loop.is_file() else {}
    lineage["policies"] = {name: _policy(policy) for name, policy in outcome.policies.items()}
    lineage["chosen"] = {"policy": "rl", "iteration": outcome.learned.best.iteration, "model_version": summary["model_version"]}
    lineage["evaluations"] = {
        name: {split: named(entry) | _rates(entry) for split, entry in splits.items()}
        for name, splits in outcome.evaluations.items()
    }
    lineage["gate"] = {
        "verdict": outcome.gate["verdict"],
        "baseline": outcome.gate["baseline"],
        "file": GATE_FILE,
        "sha256": digest_file(run.record.path / GATE_FILE),
    }
    lineage["mlflow_run"] = summary["mlflow_run"]
    if learned := _note_learned(run, outcome.policies["rl"]):
        lineage["learned"] = learned
    run.record.write(LINEAGE_FILE, lineage)


def _note_learned(run: Run, policy: Policy) -> dict[str, Any] | None:
    """Write which traces the adapter learned from into the record: the store may be freed, and the adapter still serve.

    It costs no run its end: where the store does not say it, the console does.
    """
    assert policy.entry is not None
    try:
        folder = WorkFolder(run.record.path.parent)
        rows = learned_rows(folder, policy.entry.path.name)
    except TracewheelError as error:
        run.reporter.say(f"lineage: which traces the adapter learned from was not noted ({error})")
        return None
    path = run.record.path / LEARNED_FILE
    partial = path.with_name(f"{PARTIAL}{path.name}")
    rows.to_parquet(partial, index=False)
    partial.replace(path)
    return {"file": LEARNED_FILE, "sha256": digest_file(path), "traces": int(rows["trace_id"].nunique())}


def _iterations(run: Run, loop: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of each iteration of a loop, with their digests and figures."""
    rows: dict[str, Any] = {}
    for number, made in loop["iterations"].items():
        rows[number] = {
            "rollouts": [_stored(run, name) for name in made["rollouts"]],
            "scores": [_stored(run, name, "success") for name in made["scores"]],
            "update": _stored(run, made["update"]),
        }
    for number, name in loop["validations"].items():
        rows.setdefault(number, {})["validation"] = _stored(run, name, "greedy", "sampled")
    return rows


def _stored(run: Run, name: str, *figures: str) -> dict[str, Any]:
    """An entry by its name: digest, and some figures of its result."""
    try:
        facts = read_metadata(run.store.root / FACTS / f"{name}.json")
    except (DataError, OSError):
        return {"entry": name, "digest": None}
    result = facts["result"] if isinstance(facts["result"], dict) else {}
    values = {figure: result.get(figure) for figure in figures}
    rates = {figure: value["rate"] if isinstance(value, dict) else value for figure, value in values.items()}
    return {"entry": name, "digest": facts["digest"], **rates}


def _policy(policy: Policy) -> dict[str, Any]:
    return named(policy) | (adapter_digests(policy.entry.path) if policy.entry else {})


def _rates(entry: Entry) -> dict[str, float | None]:
    return {mode: entry.result[mode]["rate"] for mode in ("greedy", "sampled") if mode in entry.result}
