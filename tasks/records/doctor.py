"""The doctor during training: it records the loop's entries, examines them, and warns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.engine.run import Policy, Run
from tracewheel.config import DoctorSections
from tracewheel.core.errors import DataError, UnhealthyRun
from tracewheel.core.files import read_json, read_table
from tracewheel.core.run_record import RunRecord
from tracewheel.core.store import Entry
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.operations.intake_record import read_intake
from tracewheel.report.doctor import (
    LOOP_FILE,
    Finding,
    Iteration,
    RunRecords,
    examine,
    read_families,
    read_guard,
    read_iteration,
    read_split_ledger,
    worst,
)
from tracewheel.report.doctor.run_records import read_judges
from tracewheel.scoring.flaws import offered_tools

FINDINGS_FILE = "doctor.json"
ALARMS = ("severe", "warning")


class Watch:
    """Looks at each iteration of a loop when it is complete.

    An iteration that was examined under the same settings is not examined again, so resuming a run, or showing a
    complete one, costs nothing.

    Args:
        run: The run.
        curated: What it learns from.
        start: The policy that the loop starts from.
    """

    def __init__(self, run: Run, curated: Entry, start: Policy) -> None:
        self._run = run
        self._settings = run.config.doctor.model_dump(mode="json")
        self._start_version = start.version
        self._curated = curated.path
        self._loop: dict[str, Any] = _read(run.record, LOOP_FILE) or {"iterations": {}, "validations": {}}
        self._loop |= {"start_version": start.version, "curated": curated.path.name}
        self._families: dict[str, str] = {}
        self._known = _read(run.record, FINDINGS_FILE) or {}
        self._iterations: dict[int, Iteration] = {}
        self._validations: dict[Path, Any] = {}  # folder to its table
        self._said: set[tuple[str, str]] = set()

    def see(
        self,
        iteration: int,
        validations: Mapping[int, Entry],
        *,
        rollouts: Sequence[Entry] = (),
        scores: Sequence[Entry] = (),
        update: Entry | None = None,
    ) -> list[Finding]:
        """Examine the run as it is after an iteration; before the first one, with iteration 0, its start.

        Args:
            iteration: The complete iteration.
            validations: Iteration to evaluation.
            rollouts, scores, update: The iteration's entries; none for iteration 0.

        Returns:
            The findings; empty when they are known already.

        Raises:
            UnhealthyRun: a check of `doctor.stop_on` has a severe finding. All of the iteration is stored.
        """
        fresh = self._write_down(
            iteration, validations, [[entry.path.name for entry in of] for of in (rollouts, scores)], update
        )
        if not fresh and self._known.get("settings") == self._settings and self._known["iteration"] >= iteration:
            if self._known["iteration"] == iteration:
                self._stop(iteration, [Finding.from_record(record) for record in self._known["findings"]])
            return []
        findings = examine(self._records(iteration, validations))
        self._known = {"iteration": iteration, "settings": self._settings, "findings": [item.to_record() for item in findings]}
        self._run.record.write(FINDINGS_FILE, self._known)
        self._say(findings)
        self._stop(iteration, findings)
        return findings

    def _write_down(
        self, iteration: int, validations: Mapping[int, Entry], rounds: list[list[str]], update: Entry | None
    ) -> bool:
        """Note the iteration's entries. Returns whether they are new; then later iterations are forgotten."""
        known = {kind: dict(self._loop[kind]) for kind in ("iterations", "validations")}
        for number, entry in validations.items():
            known["validations"][str(number)] = entry.path.name
        if update is not None:
            known["iterations"][str(iteration)] = {"rollouts": rounds[0], "scores": rounds[1], "update": update.path.name}
        if all(known[kind] == self._loop[kind] for kind in known):
            return False
        for kind, entries in known.items():
            self._loop[kind] = {number: made for number, made in entries.items() if int(number) <= iteration}
        self._run.record.write(LOOP_FILE, self._loop)
        return True

    def _records(self, iteration: int, validations: Mapping[int, Entry]) -> RunRecords:
        config, store = DoctorSections.of(self._run.config), self._run.store.root
        for name, made in self._loop["iterations"].items():
            number = int(name)
            if number <= iteration and number not in self._iterations:
                rollouts, scores = ([store / folder for folder in made[kind]] for kind in ("rollouts", "scores"))
                self._iterations[number] = read_iteration(config, number, rollouts, scores, store / made["update"])
        self._families = self._families or read_families(self._curated)
        for entry in validations.values():
            if entry.path not in self._validations:
                self._validations[entry.path] = read_table(entry.path / RESULTS_FILE)
        return RunRecords(
            config=config,
            iterations=[self._iterations[number] for number in sorted(self._iterations)],
            validations={number: self._validations[entry.path] for number, entry in validations.items()},
            judges=read_judges({number: entry.path for number, entry in validations.items()}),
            start_version=self._start_version,
            tools=offered_tools(config.environment.spec) is not None,
            families=self._families,
            guard=read_guard(self._run.record.path),
            split_ledger=read_split_ledger(self._curated),
            intake=read_intake(self._run.record.path, self._run.store.root.parent),
        )

    def _say(self, findings: Sequence[Finding]) -> None:
        """Report findings that are new or newly severe."""
        for item in findings:
            if item.severity not in ALARMS or (item.check, item.severity) in self._said:
                continue
            self._said.add((item.check, item.severity))
            self._run.reporter.say(f"doctor, {item.severity}: {item.sentence}")

    def _stop(self, iteration: int, findings: Sequence[Finding]) -> None:
        """Stop the run if `stop_on` lists the check and the finding still holds."""
        stop_on = self._run.config.doctor.stop_on
        severe = [item for item in findings if item.severity == "severe" and iteration in item.iterations]
        found = [item for item in severe if item.check in stop_on]
        if not found:
            return
        left = [name for name in stop_on if name not in {item.check for item in found}]
        raise UnhealthyRun(
            f"run {self._run.record.run_id} stopped after iteration {iteration}: "
            + "; ".join(item.sentence for item in found)
            + f" What is done is stored: the same command resumes with --set 'doctor.stop_on=[{','.join(left)}]'",
            result(self._run.record.run_id, iteration, findings),
        )


def result(run_id: str, iterations: int, findings: Sequence[Finding]) -> dict[str, Any]:
    """The doctor's result for a run, as JSON types."""
    return {
        "run_id": run_id,
        "iterations": iterations,
        "severity": worst(item.severity for item in findings if item.severity != "not_checked"),
        "findings": [item.to_record() for item in findings],
    }


def stored_findings(record: RunRecord) -> list[Finding]:
    """The findings of the run's loop; none before it."""
    file = record.path / FINDINGS_FILE
    return [Finding.from_record(item) for item in read_json(file)["findings"]] if file.is_file() else []


def _read(record: RunRecord, name: str) -> dict[str, Any] | None:
    """A file that is written again as the run goes on; None where it is missing or damaged."""
    path = record.path / name
    try:
        found = read_json(path) if path.is_file() else None
    except DataError:
        return None
    return found if isinstance(found, dict) else None
