"""What a model card says of a run, from the run's record: counts, digests and figures, and no word of a user."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tracewheel import DataError, content_hash, read_json

# Files of a run's record.
CONFIG_FILE, LINEAGE_FILE, SNAPSHOT_FILE, SUMMARY_FILE = "config.yaml", "lineage.json", "snapshot.json", "summary.json"
PROMPT_FILE = "prompt.json"
POLICY = "rl"
FIGURES = {"success": "greedy success", "sampled": "sampled success", "harder": "greedy success, harder tier"}


@dataclass(frozen=True)
class Figure:
    """A rate of the policy, or of another one, with its 95% interval."""

    policy: str
    kind: str
    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class RunFacts:
    """A complete run.

    Attributes:
        run_id: The run.
        config: Its resolved profile.
        config_digest: SHA-256 of that file.
        held_out: Number of held-out tasks.
        figures: Rates of all policies, the exported one's among them.
        gate: The gate's verdict.
        intake: Counts of what was read.
        sides: Number of tasks by side of the split.
        slices: SHA-256 and number of lines of each part of the logs that was read.
        lineage: Commit, input digests, packages.
    """

    run_id: str
    config: Mapping[str, Any]
    config_digest: str
    held_out: int
    figures: list[Figure]
    gate: Mapping[str, Any]
    intake: Mapping[str, Any]
    sides: Mapping[str, int]
    slices: list[tuple[str, int]]
    lineage: Mapping[str, Any] = field(default_factory=dict)


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_run(folder: Path) -> bool:
    """Whether a folder is the record of a run."""
    return (folder / LINEAGE_FILE).is_file()


def prompt_of(run: Path) -> dict[str, Any] | None:
    """The prompt that a run's policy was judged under, with its digest; None where that is the environment's own.

    The lineage has it, too: of a run whose record MLflow has, that is all there is.

    Raises:
        DataError: it is gone, or was changed since.
    """
    config, path = yaml.safe_load((run / CONFIG_FILE).read_text(encoding="utf-8")), run / PROMPT_FILE
    if "prompt" in config:
        found = read_json(path)["prompt"] if path.is_file() else read_json(run / LINEAGE_FILE).get("prompt", {}).get("prompt")
        if not found:
            raise DataError(f"{path}: is gone, and without it this is another policy than the gate judged")
        return checked(found, path)
    told = (config.get("environment") or {}).get("args", {}).get("prompt")
    if config.get("environment", {}).get("kind") != "prompted" or told is None:
        return None
    whole = {"system": "", "tools": {}, "demonstrations": []} | told
    return {**whole, "digest": content_hash(whole, length=16)}


def checked(prompt: dict[str, Any], path: Path) -> dict[str, Any]:
    """A stored prompt whose digest is right.

    Raises:
        DataError: it is not.
    """
    if content_hash({name: value for name, value in prompt.items() if name != "digest"}, length=16) != prompt.get("digest"):
        raise DataError(f"{path}: is not what the gate judged: the prompt was changed")
    return prompt


def run_facts(folder: Path) -> RunFacts:
    """Read the record of a complete run.

    Raises:
        DataError: it is no such record, or the run is not complete.
    """
    if not is_run(folder):
        raise DataError(
            f"{folder}: no run's record (it has no {LINEAGE_FILE}); name a run's folder, as `tracewheel runs status` lists it"
        )
    if not (folder / SUMMARY_FILE).is_file():
        raise DataError(f"{folder}: the run is not complete (no {SUMMARY_FILE}); finish it with `tracewheel retrain`")
    summary = read_json(folder / SUMMARY_FILE)
    config_file = folder / CONFIG_FILE
    try:
        config = yaml.safe_load(config_file.read_text(encoding="utf-8"))
        base = config["policy"]["base"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise DataError(f"{config_file}: not the resolved profile of a run ({error})") from error
    snapshot = read_json(folder / SNAPSHOT_FILE) if (folder / SNAPSHOT_FILE).is_file() else {}
    assert base
    return RunFacts(
        run_id=str(summary["run_id"]),
        config=config,
        config_digest=digest_file(config_file),
        held_out=int(summary.get("n_held_out", 0)),
        figures=_figures(summary),
        gate=summary.get("gate", {}),
        intake=summary.get("intake", {}),
        sides=(summary.get("splits") or {}).get("sides", {}),
        slices=[
            (part["sha256"], part["next_line"] - part["line"])
            for file in snapshot.get("files", [])
            for part in file.get("slices", [])
        ],
        lineage=read_json(folder / LINEAGE_FILE),
    )


def _figures(summary: Mapping[str, Any]) -> list[Figure]:
    found = []
    for kind in FIGURES:
        for policy, value in summary.get(kind, {}).items():
            interval = summary.get("intervals", {}).get(kind, {}).get(policy)
            if value is not None:
                found.append(Figure(policy, kind, value, (interval[0], interval[1]) if interval else None))
    return found


PACKAGES = ("torch", "transformers", "peft")
DATASETS = {"traces": "traces, as ingested", "curated": "tasks, as curated"}


def run_rows(run: RunFacts) -> list[tuple[str, str]]:
    """What the run was made with and from, and what it made, as name and value."""
    lineage = run.lineage
    rows = [("run", f"`{run.run_id}`"), ("profile, SHA-256", f"`{run.config_digest}`")]
    for name, key in (("commit", "git"), ("commit of the project", "project")):
        if git := lineage.get(key):
            rows.append((name, f"`{git['commit']}`{' with changes' if git.get('changed') else ''}"))
    rows += _with(lineage)
    if parent := lineage.get("parent"):
        rows.append(
            ("champion that it began with", f"version {parent['version']}, run `{parent['run_id']}`, `{parent['digest']}`")
        )
    rows += [(f"{words}, digest", f"`{found['digest']}`") for name, words in DATASETS.items() if (found := _of(run, name))]
    if splits := _of(run, "splits"):
        rows.append(("record of splits, SHA-256", f"`{splits['sha256']}`"))
    if (chosen := lineage.get("chosen") or {}).get("iteration") is not None:
        rows.append(("iteration", f"{chosen['iteration']} of {len(lineage['iterations'][POLICY])}"))
    for split, found in (lineage.get("evaluations") or {}).get(POLICY, {}).items():
        rows.append((f"evaluation on {split.replace('_', ' ')} tasks, digest", f"`{found['digest']}`"))
    if (gate := lineage.get("gate")) and "sha256" in gate:
        rows.append(("gate's record, SHA-256", f"`{gate['sha256']}`"))
    if learned := lineage.get("learned"):
        rows.append(("list of the traces that it learned from, SHA-256", f"`{learned['sha256']}`"))
    return rows


def learned_rows(run: RunFacts) -> list[tuple[str, int]]:
    """How many traces the policy learned from, where the run noted it."""
    learned = run.lineage.get("learned")
    return [("traces that the policy learned from", int(learned["traces"]))] if learned else []


def _with(lineage: Any) -> Iterator[tuple[str, str]]:
    """Packages and machine."""
    packages = lineage.get("packages", {})
    yield from ((name, packages[name]) for name in PACKAGES if name in packages)
    if environment := lineage.get("environment"):
        yield "all packages, SHA-256 of their list", f"`{environment['sha256']}`"
    if machine := lineage.get("machine"):
        kind = machine.get("kind", {})
        named = [kind.get("system"), kind.get("architecture"), kind.get("processor"), *kind.get("gpus", ())]
        yield "machine", f"{', '.join(map(str, filter(None, named)))}; threads {machine.get('threads')}"


def _of(run: RunFacts, name: str) -> Any:
    return (run.lineage.get("datasets") or {}).get(name)
