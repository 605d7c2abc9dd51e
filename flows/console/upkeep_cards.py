"""What the commands between one run and the next say: the state of runs, the champion, schedules, MLflow and the store."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from flows.commands.batches import held_rows
from flows.console.arguments import profile_words
from flows.console.look import Card, Grid, number, percent

Options = argparse.Namespace
Result = Mapping[str, Any]
UNITS = ("B", "kB", "MB", "GB", "TB")


def rollback_card(options: Options, result: Result) -> Card:
    return Card(
        f"Version {result['restored']}, of run {result['run_id']}, is champion again",
        look_at=f"version {result['rolled_back']} is marked as rolled back: {result['why']}",
        next=[f"tracewheel status {profile_words(options)}"],
    )


def status_card(options: Options, result: Result) -> Card:
    runs = result["runs"]
    rows = [
        (run["run_id"], run["started"][:16].replace("T", " "), run["verdict"] or run["state"], percent(run["success"]))
        for run in runs
    ]
    complete = [run for run in runs if run["report"]]
    says = [
        (f"{run['run_id']} {run['state']}", "; ".join(part for part in (run["message"], run["next"]) if part))
        for run in runs
        if run.get("next")
    ]
    next = [f"tracewheel retrain {profile_words(options)}"]
    if runs and runs[0]["report"]:
        next = [f"tracewheel doctor {profile_words(options)} --run {runs[0]['run_id']}"]
    return Card(
        f"{number(len(runs))} runs, the last started first" if runs else "No runs yet",
        [
            *([("last report", complete[0]["report"])] if complete else []),
            *says,
            *_last_decision(result.get("decision")),
            *_waiting(options, result),
            *held_rows(result),
        ],
        [Grid(("run", "started", "verdict", "success after RL"), rows)] if runs else (),
        result["note"],
        "good",
        next,
    )


def _waiting(options: Options, result: Result) -> list[tuple[str, str]]:
    if not result.get("waiting"):
        return []
    return [("for MLflow", f"{number(result['waiting'])} runs wait; tracewheel sync {profile_words(options)} delivers them")]


def sync_card(options: Options, result: Result) -> Card:
    runs = len(result["delivered"])
    title = f"{number(runs)} runs delivered to MLflow" if runs else "Nothing waits for MLflow"
    return Card(title, next=[f"tracewheel status {profile_words(options)}"])


def _last_decision(line: dict[str, Any] | None) -> list[tuple[str, str]]:
    if not line:
        return []
    again = f", and {number(line['ticks'] - 1)} times since without new logs" if line["ticks"] > 1 else ""
    return [
        (
            "last decision",
            f"{line['at'][:16].replace('T', ' ')} {'started' if line['starts'] else 'skipped'}{again}: {line['why']}",
        )
    ]


def report_card(options: Options, result: Result) -> Card:
    return Card(f"Report written to {result['report']}", next=[f"tracewheel doctor {profile_words(options)}"])


def deploy_card(options: Options, result: Result) -> Card:
    return Card(f"Deployment {result['deployment']} ended", next=[f"tracewheel status {profile_words(options)}"])


def gc_card(options: Options, result: Result) -> Card:
    """What was freed, or would be, by stage."""
    freed, kept = result["freed"], result["kept"]
    rows = [(kind, number(item["entries"]), in_units(item["bytes"])) for kind, item in result["kinds"].items()]
    some = result["bytes"] > 0
    keep = f" --keep {options.keep}" if options.keep is not None else ""
    return Card(
        f"{'Freed' if freed else 'Would free'} {in_units(result['bytes'])} of {result['work_dir']}",
        [
            ("left in the store", f"{in_units(kept['store_bytes'])}, {number(kept['entries'])} entries"),
            ("champion", result["champion"]),
        ],
        parts=[
            *([Grid(("stage", "entries", "bytes"), rows)] if rows else []),
            Grid(("kept run", "why"), list(kept["runs"].items())),
        ],
        look_at="" if some else "nothing can be freed",
        next=[f"tracewheel gc {profile_words(options)}{keep} --yes"] if some and not freed else [],
    )


def in_units(size: int) -> str:
    """Bytes in the unit that reads best."""
    value, place = float(size), 0
    while value >= 1000 and place < len(UNITS) - 1:
        value, place = value / 1000, place + 1
    return f"{value:.0f} {UNITS[place]}" if place == 0 else f"{value:.1f} {UNITS[place]}"
