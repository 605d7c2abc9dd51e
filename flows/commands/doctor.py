"""`tracewheel doctor`: known failure modes in a run's records."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import profile_of, profile_options
from flows.console.look import Block, Card, Grid
from tracewheel.core.errors import DataError, UnhealthyRun

MEND = "The run ended by this error, so later records are missing. Mend what it names; `tracewheel retrain` resumes the run."


def add_options(parser: argparse.ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--run", metavar="RUN_ID", help="which run of the work folder (default: the profile's)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Examine the profile's run, or the one that `--run` names; it may be complete, stopped or running.

    Raises:
        DataError: there is no such run, or it has not reached reinforcement learning.
        UnhealthyRun: a finding is severe.
    """
    config = profile_of(options, prefect=True)
    from tasks.engine.reading import last_run
    from tasks.records.doctor import result
    from tracewheel.config import DoctorSections, load_stored_config
    from tracewheel.core.run_record import LINEAGE_FILE, RunRecord
    from tracewheel.core.run_state import FAILED
    from tracewheel.report.doctor import LOOP_FILE, examine, read_records
    from tracewheel.report.doctor.finding import Finding

    work_dir = Path(config.work_dir)
    run_id = options.run or last_run(config).record.run_id
    record = RunRecord(work_dir, run_id)
    if not (record.path / LINEAGE_FILE).is_file():
        raise DataError(f"{record.path}: no such run; `tracewheel runs status` lists them, --run names one")
    own = DoctorSections.of(load_stored_config(record.path).model_copy(update={"doctor": config.doctor}))
    records = read_records(own, record.path, work_dir / "store") if (record.path / LOOP_FILE).is_file() else None
    findings = examine(records) if records else []
    if (state := record.state.read()).get("state") == FAILED:
        # What a run ends by in its first rollout, such as programs that all fail, leaves no records to examine.
        where = {"at": state["stage"]} if state.get("stage") else {}
        findings.insert(0, Finding("failed", "severe", {**where, "by": state.get("message", "")}, MEND))
    if not findings:
        raise DataError(f"{record.path}: the run has not reached reinforcement learning; `tracewheel retrain` resumes it")
    said = result(run_id, len(records.iterations) if records else 0, findings)
    severe = [item.check for item in findings if item.severity == "severe"]
    if severe:
        raise UnhealthyRun(f"run {run_id}: {', '.join(severe)}", said)
    return said


def card(options: argparse.Namespace, result: Mapping[str, Any]) -> Card:
    """A table of the findings, the severe ones first, and advice below it."""
    from tracewheel.report.doctor.finding import SEVERITIES, shown

    rows, advice = [], []
    for item in sorted(result["findings"], key=lambda item: SEVERITIES.index(item["severity"])):
        evidence = [f"{name}: {shown(value)}" for name, value in item["evidence"].items() if not isinstance(value, Mapping)]
        numbers, check = item["iterations"], f"{item['loop']} {item['check'].replace('_', ' ')}".strip()
        span = "" if not numbers else f"{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
        rows.append((check, item["severity"].replace("_", " "), span, "\n".join(evidence) or item["advice"]))
        if item["severity"] in ("severe", "warning"):
            advice.append(f"{check}: {item['advice']}")
    return Card(
        f"Run {result['run_id']} after {result['iterations']} iterations: {result['severity'].replace('_', ' ')}",
        (),
        [Grid(("check", "finding", "iterations", "evidence"), rows, figures=False), Block("", advice)],
        "nothing is wrong that the doctor knows of" if result["severity"] == "healthy" else "",
    )


COMMAND = Command("doctor", "look for the known failure modes in a run's records", add_options, run, card)
