"""`tracewheel runs status`: the runs of a work folder, the champion, and what waits."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import profile_of, profile_options, profile_words
from flows.console.look import Card, Grid, number, percent
from tracewheel.core.run_state import RUNNING


def run(options: argparse.Namespace) -> dict[str, Any]:
    config = profile_of(options, prefect=True)
    from tasks.records.decisions import last_decision
    from tasks.records.gate_ledger import waiting_candidate
    from tasks.tracking.registry import find_champion
    from tasks.tracking.tracking import waiting_runs
    from tracewheel.core.run_record import find_runs
    from tracewheel.core.run_state import describe
    from tracewheel.core.store import Store
    from tracewheel.operations.batches import held_batches

    runs = []
    held = Store(Path(config.work_dir) / "store").is_held()
    for record in find_runs(Path(config.work_dir)):
        summary = record.summary or {}
        runs.append(
            {
                "run_id": record.run_id,
                "started": record.lineage["started"],
                **({"state": "complete"} if summary else describe(record.path, held=held)),
                "verdict": summary.get("gate", {}).get("verdict"),
                "success": summary.get("success", {}).get("rl"),
                "report": summary.get("report"),
            }
        )
    champion, says = find_champion(config)
    return {
        "runs": runs,
        "champion": champion.to_record() if champion else None,
        "note": says,
        "candidate": waiting_candidate(config.work_dir),
        "decision": last_decision(config.work_dir),
        "waiting": len(waiting_runs(config.work_dir)),
        "held_batches": [batch.to_record() for batch in held_batches(config.work_dir)],
    }


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    runs, profile = result["runs"], profile_words(options)
    table = [
        (run["run_id"], run["started"][:16].replace("T", " "), run["verdict"] or run["state"], percent(run["success"]))
        for run in runs
    ]
    rows = [("last report", run["report"]) for run in runs if run["report"]][:1]
    for run in runs:
        if run.get("next"):
            rows.append((f"{run['run_id']} {run['state']}", "; ".join(filter(None, (run["message"], run["next"])))))
    if line := result.get("decision"):
        again = f", and {number(line['ticks'] - 1)} times since without new logs" if line["ticks"] > 1 else ""
        what = f"{'started' if line['starts'] else 'skipped'}{again}: {line['why']}"
        rows.append(("last decision", f"{line['at'][:16].replace('T', ' ')} {what}"))
    if line := result.get("candidate"):
        rows.append(("candidate", f"of run {line['run']}, {line.get('why', 'not played on fresh tasks yet')}"))
    if waiting := result.get("waiting"):
        rows.append(("for MLflow", f"{number(waiting)} runs wait; tracewheel runs sync {profile} delivers them"))
    for batch in result.get("held_batches", ()):
        rows.append((f"held {batch['id']}", f"{batch['records']['read']} records of {batch['of']}: {batch['why']}"))
    done, running = runs and runs[0]["report"], runs and runs[0]["state"] == RUNNING
    next = f"tracewheel doctor {profile} --run {runs[0]['run_id']}" if done else f"tracewheel retrain {profile}"
    return Card(
        f"{number(len(runs))} runs, the last started first" if runs else "No runs yet",
        rows,
        [Grid(("run", "started", "verdict", "success after RL"), table)] if runs else (),
        result["note"],
        next=[] if running else [next],
    )


COMMAND = Command("runs status", "runs, their verdicts, and the champion", profile_options, run, card)
