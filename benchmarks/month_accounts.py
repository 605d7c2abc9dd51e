"""The books of a simulated month: what a day's runs did, what they used before, where each trace is; used by `month.py`."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from measuring import table

EXAM_TASKS = 100
TRAINED, SELECTED = "train", "validation"
HELD = ("held_out", "harder")
GATE = ("verdict", "baseline", "difference", "interval", "level", "look", "reasons")


def figures_of(work: Path, since: float) -> dict[str, Any]:
    """What the latest of the runs that were changed since a moment did."""
    found: dict[str, Any] = {"touched": [path.name for path in _touched(work, since)]}
    for record in _touched(work, since):
        loop = record / "loop.json"
        if loop.is_file():
            found["curated"] = json.loads(loop.read_text())["curated"]
        summary_file = record / "summary.json"
        if not summary_file.is_file():
            continue
        summary = json.loads(summary_file.read_text())
        found |= {
            "run": summary["run_id"],
            "gate": {name: summary["gate"].get(name) for name in GATE},
            "success": summary["success"],
            "n_held_out": summary["n_held_out"],
            "seconds_by_stage": summary["seconds"],
            "wall_seconds": summary["wall_seconds"],
            "cached": summary["cached"],
            "splits": {name: value for name, value in (summary["splits"] or {}).items() if name != "says"},
        }
    return found


def _touched(work: Path, since: float) -> list[Path]:
    records = [path.parent for path in work.glob("*/lineage.json")]
    changed = {record: max(file.stat().st_mtime for file in record.iterdir()) for record in records}
    return sorted((record for record in records if changed[record] >= since), key=lambda record: changed[record])


def uses_of(work: Path, curated: str | None, days: list[dict[str, Any]]) -> dict[str, int]:
    """How many of the day's held-out and harder tasks earlier runs trained and selected on, from the runs' own task tables.

    What was used so far is in a file beside the work folder, because the store forgets old curations.
    """
    import pandas

    book = work.parent.parent / "uses.json"
    used: dict[str, list[str]] = json.loads(book.read_text()) if book.is_file() else {TRAINED: [], SELECTED: []}
    file = work / "store" / (curated or "-") / "tasks.parquet"
    if not file.is_file():
        return {}
    tasks = pandas.read_parquet(file, columns=["fingerprint", "split"])
    held = set(tasks.loc[tasks["split"].isin(HELD), "fingerprint"])
    counts = {"held": len(held), **{f"{split}_before": len(held & set(used[split])) for split in used}}
    for split in used:
        used[split] = sorted({*used[split], *tasks.loc[tasks["split"] == split, "fingerprint"]})
    book.write_text(json.dumps(used))
    return counts | {"trained_so_far": len(used[TRAINED])}


def exam_of(place: Any, days: list[dict[str, Any]]) -> dict[str, Any]:
    """Greedy success of the champion (the base before the first) on tasks that no log holds."""
    champion = _champion(place.run)
    name = champion.name if champion else "base"
    for day in reversed(days):
        if day["exam"]["champion"] == name:
            return dict(day["exam"])
    return {"champion": name, **examined(place.profile, champion / "adapter" if champion else None)}


def _champion(work: Path) -> Path | None:
    """The record of the last promoted run."""
    promoted = []
    for file in work.glob("*/summary.json"):
        summary = json.loads(file.read_text())
        if summary["gate"]["verdict"] == "promoted" and (file.parent / "adapter").is_dir():
            promoted.append((json.loads((file.parent / "lineage.json").read_text())["started"], file.parent))
    return max(promoted)[1] if promoted else None


def examined(profile: Path, adapter: Path | None) -> dict[str, Any]:
    """Success of a policy on the exam, in all and by family."""
    from month_logs import exam

    from tracewheel.config import EvaluateSections, load_config
    from tracewheel.evaluation.evaluate import evaluate
    from tracewheel.policy.adapters import PolicyRef

    config = load_config(profile)
    policy = PolicyRef(config.policy.base, str(adapter) if adapter else None)
    with tempfile.TemporaryDirectory() as folder:
        done = evaluate(EvaluateSections.of(config), policy, exam(EXAM_TASKS), Path(folder), samples=1, seed=0)
    families = {family: rates["greedy"]["rate"] for family, rates in done["by_family"].items()}
    return {"success": done["greedy"]["rate"], "interval": done["greedy"]["interval"], "by_family": families}


def sizes_of(place: Any) -> dict[str, int]:
    """Bytes of the store, of the records of runs, of Prefect's files, of MLflow's, and of what waits for MLflow."""
    from tracewheel.core.housekeeping import bytes_in

    runs = sum(bytes_in(path.parent) for path in place.run.glob("*/lineage.json"))
    folders = {"store": place.run / "store", "prefect": place.run / ".prefect", "spool": place.run / "mlflow-spool"}
    folders |= {"mlflow": place.work / "mlflow", "logs": place.logs}
    return {name: _bytes(bytes_in, folder) for name, folder in folders.items()} | {"records": runs}


def _bytes(bytes_in: Any, folder: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # files come and go while a run works
        return int(bytes_in(folder)) if folder.exists() else 0
    return 0


def account(work: Path, logs: Path, days: list[dict[str, Any]]) -> dict[str, Any]:
    """Where each logged trace is: kept, in quarantine, held, or in a file that no run has read yet."""
    import pandas

    logged: dict[str, str] = {}
    lines = 0
    for file in sorted(logs.glob("*.jsonl")):
        for line in file.read_bytes().splitlines():
            lines += 1
            logged[json.loads(line)["id"]] = file.name
    entry = _last_ingest(work)
    kept = set(pandas.read_parquet(entry / "traces.parquet", columns=["id"])["id"]) if entry else set()
    result = json.loads((work / "store/.facts" / f"{entry.name}.json").read_text())["result"] if entry else {}
    missing = Counter(file for name, file in logged.items() if name not in kept)
    held = held_lines(work, logs)
    return {
        "lines": lines,
        "kept": len(kept & set(logged)),
        "kept_and_never_logged": len(kept - set(logged)),
        "ingest": {name: result.get(name) for name in ("read", "kept", "duplicates", "quarantined")},
        "not_kept_by_file": dict(missing),
        "held": held,
        "batches_held": [batch for batch in batches_of(work) if batch["state"] == "held"],
        "unaccounted": sum(count for file, count in missing.items() if count != held.get(file, 0))
        - result.get("quarantined", 0),
        "held_out_trained_or_selected_before": sum(
            count for day in days for name, count in day["used_before"].items() if name.endswith("_before")
        ),
    }


def held_lines(work: Path, logs: Path) -> dict[str, int]:
    """Lines of held batches by file."""
    from tracewheel.operations.batches import HELD, Batches

    counts: Counter[str] = Counter()
    for batch in Batches(work).all():
        for part in batch.parts if batch.state == HELD else ():
            last = part.next_line or 1 + len((logs / Path(part.file).name).read_bytes().splitlines())
            counts[Path(part.file).name] += last - part.line
    return dict(counts)


def batches_of(work: Path) -> list[dict[str, Any]]:
    """The batches with their state, the number of records and what speaks against them."""
    from tracewheel.operations.batches import Batches

    return [
        {
            "id": batch.id,
            "state": batch.state,
            "files": sorted({Path(part.file).name for part in batch.parts}),
            "read": batch.profile.read,
            "reasons": [result.sentence for result in batch.reasons],
        }
        for batch in Batches(work).all()
    ]


def _last_ingest(work: Path) -> Path | None:
    """The last ingest that a run accepted; the store may hold a later one with a batch that is held."""
    chain = work / "ingested.json"
    if not chain.is_file():
        return None
    return work / "store" / str(json.loads(chain.read_text())[-1]["entry"])


def shown(result: dict[str, Any]) -> str:
    """A row a day, and the accounts."""
    head = ["day", "trouble", "lines", "state", "gate", "held out", "exam", "s", "evaluate s", "rollout + update s", "store MB"]
    rows = []
    for day in result["days"]:
        gate, stages = day.get("gate") or {}, day.get("seconds_by_stage") or {}
        gained = gate.get("difference")
        verdict = f"{gate['verdict']} ({100 * gained:+.0f})" if gate and gained is not None else gate.get("verdict", "")
        work = stages.get("rollout", 0.0) + stages.get("update", 0.0)
        rows.append(
            [
                day["day"],
                day["trouble"],
                day["lines"],
                ", ".join(run["name"] for run in day["runs"]) or "none ended",
                verdict,
                day.get("n_held_out"),
                day["exam"]["success"],
                day["seconds"],
                stages.get("evaluate"),
                work or None,
                day["bytes"]["store"] / 1e6,
            ]
        )
    said = "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in result["accounts"].items())
    return f"{table(head, rows)}\n\n{said}"
