"""`tracewheel batches`: the batches of a work folder, which of them are held, and the decisions about them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Block, Card, Command, DataError, Grid, profile_of, profile_options, profile_words

if TYPE_CHECKING:
    from tracewheel import RetrainConfig


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
    from tracewheel_screening.batches import HELD, RELEASED, Batches

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


def learnt_from(config: RetrainConfig, slices: set[str]) -> dict[str, Any]:
    """The runs that read any of these slices and came to an end, and the champion if it is of one of them."""
    from tracewheel import find_champion, find_runs

    runs = []
    for record in find_runs(Path(config.work_dir)):
        snapshot = record.snapshot
        if record.summary is None or snapshot is None:
            continue
        if slices & {part["sha256"] for log in snapshot["files"] for part in log["slices"]}:
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
            f"{batch['records']['read']:,}",
            batch["of"],
            batch["why"],
        )
        for batch in result["batches"]
    ]
    held = [batch for batch in result["batches"] if batch["state"] == "held"]
    waiting = [batch for batch in held if batch["waits"]]
    totals = result["totals"]
    return Card(
        f"{len(rows):,} batches, {len(held):,} held" if rows else "No batches yet",
        [("records", _counts(totals))] if rows else (),
        [Grid(("batch", "screened (UTC)", "state", "records", "of", "reasons"), rows)] if rows else (),
        f"{len(waiting):,} held batches wait for a decision" if waiting else "",
        "warning" if waiting else "good",
        [f"{command} --show {waiting[-1]['id']}"] if waiting else [],
    )


def _one(options: argparse.Namespace, result: Mapping[str, Any], command: str) -> Card:
    from tracewheel import LogPart

    batch = result["batch"]
    rows = [
        ("of", ", ".join(LogPart(**part).shown for part in batch["parts"])),
        ("records", _counts(batch["records"])),
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


def _counts(records: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in records.items())


COMMAND = Command("batches", "the batches of new logs: which are held, why; let one in", add_options, run, card)
