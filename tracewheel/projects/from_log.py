"""A project from a log file: its format and tools are found out, and its calls and replies become a recorded world."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_table
from tracewheel.environments.recorded.build import build_recording, tool_sets
from tracewheel.environments.recorded.recording import ABOUT_FILE, CALLS_FILE
from tracewheel.projects.project import Project
from tracewheel.traces.ingest import ingest
from tracewheel.traces.ingested_folder import TRACES_FOLDER

if TYPE_CHECKING:
    import pandas

RECORDED = "recorded"
FEWEST_TASKS = 3  # curation makes three sides of them
REAL_BASE = "Qwen/Qwen2.5-0.5B-Instruct"


@dataclass(frozen=True)
class Finding:
    """What a log holds.

    Attributes:
        log: The file or folder.
        formats: Traces by the format that they were read as.
        traces: How many were kept.
        quarantined: How many records could not be read.
        outcomes: Traces with a logged `success`, `failure`, or neither (`unknown`).
        tool_set: The tools' set that the world is made of, where there are several.
        other_sets: Traces by the sets that were left out.
        inferred: Whether the schemas were inferred from calls, because the log has none.
        about: The recording's `recording.json`.
        recording: Its files, which the project copies.
    """

    log: Path
    formats: dict[str, int]
    traces: int
    quarantined: int
    outcomes: dict[str, int]
    tool_set: str
    other_sets: dict[str, int]
    inferred: bool
    about: dict[str, Any]
    recording: dict[str, Path]

    @property
    def problems(self) -> list[str]:
        """What stands between this log and a run, in words."""
        found = []
        if self.about["tasks"] < FEWEST_TASKS:
            found.append(
                f"{self.about['tasks']} task(s): curation needs at least {FEWEST_TASKS}, for training, choice and test"
            )
        if not self.outcomes["success"]:
            found.append("no logged success: log rewards, or write a verifier; without either nothing is scored")
        if self.quarantined:
            found.append(f"{self.quarantined} record(s) could not be read: tracewheel ingest names them in quarantine.jsonl")
        return found


def look_into(log: str, scratch: Path) -> Finding:
    """Read a log and make a recording of it in the folder `scratch`.

    Raises:
        DataError: there is no such log, nothing in it can be read, or no trace has a tool call.
    """
    report = ingest(IngestConfig(paths=(log,)), scratch / "ingested")
    if not report["kept"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in report["by_reason"].items()) or "it holds no record"
        raise DataError(f"{log}: no trace can be read ({reasons}); tracewheel ingest --explain {log} shows a record")
    traces = read_table(scratch / "ingested" / TRACES_FOLDER)
    chosen, sets = _largest_set(traces)
    if not sets:
        raise DataError(
            f"{log}: none of its {len(traces)} traces has a tool or a call, so there is no world to record; write an "
            "environment: tracewheel init without --logs shows one"
        )
    used = traces[tool_sets(traces).isin([chosen, ""])]  # an attempt without a call belongs to its task, too
    about = build_recording(used, scratch / RECORDED)
    return Finding(
        log=Path(log).resolve(),
        formats=dict(report["by_format"]),
        traces=int(report["kept"]),
        quarantined=int(report["quarantined"]),
        outcomes=_outcomes(used),
        tool_set=chosen,
        other_sets={name: count for name, count in sets.items() if name != chosen},
        inferred=bool(used["tools_inferred"].any()),
        about=about,
        recording={f"{RECORDED}/{name}": scratch / RECORDED / name for name in (CALLS_FILE, ABOUT_FILE)},
    )


def log_project(project: Project, log: str, base: str | None) -> tuple[Finding, list[str]]:
    """Write the project; returns what the log holds, and the names of the files.

    Raises:
        DataError: as for `look_into`, or the folder cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="tracewheel-init-") as scratch:
        finding = look_into(log, Path(scratch))
        return finding, project.write(_files(project, finding, base), finding.recording)


def _files(project: Project, finding: Finding, base: str | None) -> dict[str, str]:
    near = finding.log.is_relative_to(project.folder.parent)
    log = os.path.relpath(finding.log, project.folder) if near else str(finding.log)
    lines = [*described(finding), *(f"to solve first: {problem}" for problem in finding.problems)]
    profile = {"BASE": json.dumps(base or REAL_BASE), "LOG": json.dumps(log)}
    return {
        "README.md": project.fill("logs_README.md", LOG=shlex.quote(log), FOUND="\n".join(f"- {line}" for line in lines)),
        "profile.yaml": project.fill("logs_profile.yaml", **profile),
        "tools.json": json.dumps(finding.about["tools"], indent=2, ensure_ascii=False) + "\n",
        ".gitignore": "runs/\ndata/\n",
    }


def described(finding: Finding) -> list[str]:
    """What was found, a line each."""
    about, outcomes = finding.about, finding.outcomes
    formats = ", ".join(f"{name} ({count})" for name, count in finding.formats.items())
    calls = ", ".join(f"`{name}` ({count})" for name, count in about["calls_by_tool"].items())
    schemas = "inferred from the calls: look them through" if finding.inferred else "as the log has them"
    lines = [
        f"{finding.traces} traces of {about['tasks']} tasks, read as {formats}",
        f"outcomes: {outcomes['success']} successes, {outcomes['failure']} failures, {outcomes['unknown']} unknown",
        f"{len(about['tools'])} tools in `tools.json`, {schemas}; {about['calls']} calls: {calls}",
    ]
    if finding.other_sets:
        left = sum(finding.other_sets.values())
        lines.append(f"{left} traces with other tools are left out of the recorded world (tracewheel data record --tool-set)")
    return lines


def _largest_set(traces: pandas.DataFrame) -> tuple[str, dict[str, int]]:
    """The tool set of most traces, ties by name, and how many traces have each."""
    sets = Counter(name for name in tool_sets(traces) if name)
    return min(sets, key=lambda name: (-sets[name], name), default=""), dict(sorted(sets.items()))


def _outcomes(traces: pandas.DataFrame) -> dict[str, int]:
    known = traces["outcome"].dropna()
    wins = int((known >= 1.0).sum())
    return {"success": wins, "failure": len(known) - wins, "unknown": len(traces) - len(known)}
