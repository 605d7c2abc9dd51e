"""`tracewheel batches`: the batches of a work folder, which of them are held, and the decisions about them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import profile_of, profile_options, profile_words
from flows.console.look import Block, Card, Grid, number
from tracewheel.core.errors import DataError


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--show", metavar="ID", help="a batch with its evidence, and the runs that learnt from it")
    which.add_argument("--release", metavar="ID", help="let a held batch in; the next run learns from it")
    which.add_argument("--hold", metavar="ID", help="leave a batch out from now on, or confirm that it is left out")
    parser.add_argument("--why", metavar="TEXT", help="the reason of a decision, kept with it")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """List the batches, show one, release it, or hold it.

    Raises:
        DataError: there is no such batch, or no reason is given for a decision.
    """
    config = profile_of(options, prefect=True)
    from tracewheel.operations.batches import HELD, RELEASED, Batches

    folder = Batches(config.work_dir)
    now = datetime.now(UTC)
    if options.release:
        return {"batch": folder.decide(options.release, RELEASED, options.why or "", now).to_record()}
    if options.hold:
        batch = folder.decide(options.hold, HELD, options.why or "", now)
        return {"batch": batch.to_record(), "learnt_from_it": learnt_from(config, {part.sha256 for part in batch.parts})}
    if options.why:
        raise DataError("--why gives the reason of --release ID or --hold ID")
    if options.show:
        batch = folder.find(options.show)
        return {"batch": batch.to_record(), "learnt_from_it": learnt_from(config, {part.sha256 for part in batch.parts})}
    return {"batches": [batch.to_record() for batch in folder.all()], "totals": folder.totals()}


def learnt_from(config: Any, slices: set[str]) -> dict[str, Any]:
    """The runs that read any of these slices and came to an end, and the champion if it is of one of them."""
    from tasks.tracking.registry import find_champion
    from tracewheel.core.files import read_json
    from tracewheel.core.run_record import SNAPSHOT_FILE, find_runs

    runs = []
    for record in find_runs(Path(config.work_dir)):
        path = record.path / SNAPSHOT_FILE
        if record.summary is None or not path.is_file():
            continue
        read = {part["sha256"] for log in read_json(path)["files"] for part in log["slices"]}
        if read & slices:
            runs.append(record.run_id)
    champion = find_champion(config)[0] if runs else None
    version = champion.version if champion and champion.run_id in runs else None
    return {"runs": runs, "champion_version": version}


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """The list, or one batch with its evidence."""
    command = f"tracewheel batches {profile_words(options)}"
    if "batch" in result:
        return _one(options, result, command)
    rows = [
        (
            batch["id"],
            batch["when"][:16].replace("T", " "),
            batch["state"],
            number(batch["records"]["read"]),
            _files(batch),
            _why(batch),
        )
        for batch in result["batches"]
    ]
    held = [batch for batch in result["batches"] if batch["state"] == "held"]
    waiting = [batch for batch in held if batch["waits"]]
    totals = result["totals"]
    return Card(
        f"{number(len(rows))} batches, {number(len(held))} held" if rows else "No batches yet",
        [("records", ", ".join(f"{number(count)} {name}" for name, count in totals.items()))] if rows else (),
        [Grid(("batch", "screened (UTC)", "state", "records", "of", "reasons"), rows)] if rows else (),
        f"{number(len(waiting))} held batches wait for a decision" if waiting else "",
        "warning" if waiting else "good",
        [f"{command} --show {waiting[-1]['id']}"] if waiting else [],
    )


def held_rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The held batches as rows of the card of `tracewheel runs status`."""
    held = result.get("held_batches", ())
    return [(f"held {it['id']}", f"{it['records']['read']} records of {_files(it)}: {_why(it)}") for it in held]


def _one(options: argparse.Namespace, result: Mapping[str, Any], command: str) -> Card:
    batch = result["batch"]
    rows = [
        ("of", ", ".join(_shown(part) for part in batch["parts"])),
        ("records", ", ".join(f"{number(count)} {name}" for name, count in batch["records"].items())),
    ]
    rows += [("decided", f"{it['when']}: {it['state']} by {it['who']}, {it['why']}") for it in batch["decisions"]]
    learnt = result.get("learnt_from_it", {"runs": []})
    if learnt["runs"]:
        rows.append(("learnt from it", f"runs {', '.join(learnt['runs'])}"))
    parts: list[Grid | Block] = [
        Grid(("check", "result", "figures"), [(it["check"], it["severity"], it["sentence"]) for it in batch["checks"]])
    ]
    for check in batch["checks"]:
        if check["examples"]:
            lines = [f"{it['file']}:{it['line']}  {it['says']}" for it in check["examples"]]
            parts.append(Block(f"Examples of {check['check']}", lines))
    look_at = ""
    if batch["state"] == "held" and learnt.get("champion_version"):
        version = learnt["champion_version"]
        look_at = f"the champion, version {version}, learnt from it: `tracewheel champion rollback` restores the one before"
    other = "--release" if batch["state"] == "held" else "--hold"
    return Card(
        f"Batch {batch['id']} is {batch['state']}",
        rows,
        parts,
        look_at,
        "warning" if batch["state"] == "held" else "good",
        [f"{command} {other} {batch['id']} --why TEXT"],
    )


def _files(batch: Mapping[str, Any]) -> str:
    shown = [_shown(part) for part in batch["parts"]]
    return ", ".join(shown[:2]) + (f" and {len(shown) - 2} more" if shown[2:] else "")


def _shown(part: Mapping[str, Any]) -> str:
    from tracewheel.operations.batches import LogPart

    return LogPart(**part).shown


def _why(batch: Mapping[str, Any]) -> str:
    return "; ".join(batch["reasons"]) or batch["decisions"][-1]["why"]


COMMAND = Command("batches", "the batches of new logs: which are held, why; let one in", add_options, run, card)
