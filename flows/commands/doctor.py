"""`tracewheel doctor`: known failure modes in a run's records."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.setup import prepare_environment, resolve_config
from tracewheel.config import DoctorSections, RetrainConfig, load_stored_config
from tracewheel.core.errors import DataError, UnhealthyRun

COLOURS = {"severe": "red", "warning": "yellow", "healthy": "green", "not_checked": "dim"}
WORDS = {"not_checked": "not checked"}


def doctor(options: argparse.Namespace) -> dict[str, Any]:
    """Examine the profile's run, or the one that `--run` names; it may be complete, stopped or running.

    Raises:
        DataError: there is no such run, or it has not reached reinforcement learning.
        UnhealthyRun: a finding is severe.
    """
    config = resolve_config(options.config, options.overrides, options.run_dir)
    prepare_environment(config.work_dir, debug=options.debug)
    from tasks.engine.reading import last_run
    from tasks.records.doctor import result
    from tracewheel.core.run_record import LINEAGE_FILE, RunRecord
    from tracewheel.report.doctor import examine, loops_of, read_records

    work_dir = Path(config.work_dir)
    run_id = options.run or last_run(config).record.run_id
    record = RunRecord(work_dir, run_id)
    if not (record.path / LINEAGE_FILE).is_file():
        raise DataError(f"{record.path}: no such run; `tracewheel status` lists them, --run names one")
    own = DoctorSections.of(_config_of(record.path, config))
    loops = {name: read_records(own, folder, work_dir / "store") for name, folder in loops_of(record.path).items()}
    if not loops:
        raise DataError(f"{record.path}: the run has not reached reinforcement learning; `tracewheel retrain` resumes it")
    findings = [replace(item, loop=name) for name, records in loops.items() for item in examine(records)]
    said = result(run_id, sum(len(records.iterations) for records in loops.values()), findings)
    shown = said if options.json else {"show": lambda: show_findings(said)}
    severe = [item.check for item in findings if item.severity == "severe"]
    if severe:
        raise UnhealthyRun(f"run {run_id}: {', '.join(severe)}", shown)
    return shown


def show_findings(said: Mapping[str, Any]) -> None:
    """Print a table of the findings, the severe ones first, and advice below it."""
    from rich.table import Table
    from rich.text import Text

    from flows.console.look import result_console, say
    from tracewheel.report.doctor.finding import SEVERITIES, shown

    console = result_console()
    table = Table(title=f"Run {said['run_id']} after {said['iterations']} iterations: {said['severity']}")
    for heading in ("check", "finding", "iterations", "evidence"):
        table.add_column(heading)
    findings = sorted(said["findings"], key=lambda item: SEVERITIES.index(item["severity"]))
    for item in findings:
        evidence = [f"{name}: {shown(value)}" for name, value in item["evidence"].items() if not isinstance(value, Mapping)]
        numbers = item["iterations"]
        table.add_row(
            f"{item['loop']} {item['check'].replace('_', ' ')}".strip(),
            Text(WORDS.get(item["severity"], item["severity"]), style=COLOURS[item["severity"]]),
            "" if not numbers else f"{numbers[0]}–{numbers[-1]}" if len(numbers) > 1 else str(numbers[0]),
            Text("\n".join(evidence) or item["advice"]),
        )
    console.print(table)
    for item in findings:
        if item["severity"] in ("severe", "warning"):
            console.print(
                f"{item['loop']} {item['check'].replace('_', ' ')}: {item['advice']}".strip(), markup=False, soft_wrap=True
            )
    if said["severity"] == "healthy":
        say(console, "nothing is wrong that the doctor knows of")


def _config_of(record: Path, given: RetrainConfig) -> RetrainConfig:
    """The run's profile with the doctor's limits of the one that was given."""
    return load_stored_config(record).model_copy(update={"doctor": given.doctor})
