"""Where the episodes of a run are: the stored results that hold trajectories, what is known of each, and their addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.run_record import LOOP_FILE, loops_of
from tracewheel.dashboard.library import NotThere, entry_path
from tracewheel.report.finished_run import FinishedRun

TRAJECTORIES, SCORES = "trajectories.parquet", "scores.parquet"
PARTS = ("greedy", "sampled")


@dataclass(frozen=True)
class Source:
    """A file of trajectories and the file with their scores.

    Attributes:
        entry: The stored result with the trajectories; in addresses.
        part: `greedy` or `sampled` of an evaluation; "" for rollouts.
        scores: None where they are not scored yet.
        kind: `rollout` or `evaluation`.
        label: A few words, as in "rollout 9" or "rl, held_out, greedy".
        iteration: Of the loop; None for an evaluation of the end.
        policy: Who played: `rl-8`, `warm_start`, ….
        split: The split that an evaluation played; "train" for rollouts.
    """

    entry: str
    part: str
    trajectories: Path
    scores: Path | None
    kind: str
    label: str
    iteration: int | None = None
    policy: str = ""
    split: str = ""


def sources_of(run: FinishedRun) -> list[Source]:
    """The episodes that a run has in the store, as far as they are there: rollouts by iteration, then evaluations."""
    return [*_rollouts(run), *_evaluations(run)]


def stored_sources(run: FinishedRun) -> list[Source]:
    """The same; none where the run has not asked for a stored result yet."""
    try:
        return sources_of(run)
    except DataError:
        return []


def _rollouts(run: FinishedRun) -> Iterator[Source]:
    for loop, folder in loops_of(run.record.path).items():
        name = f"{loop}: " if loop else ""
        iterations: dict[str, dict[str, Any]] = read_json(folder / LOOP_FILE).get("iterations") or {}
        for number, made in sorted(iterations.items(), key=lambda item: int(item[0])):
            rollouts, scores = made.get("rollouts") or (), made.get("scores") or ()
            for place, entry in enumerate(rollouts):
                path = run.store / entry / TRAJECTORIES
                if not path.exists():
                    continue
                scored = run.store / scores[place] / SCORES if place < len(scores) else None
                yield Source(
                    entry=entry,
                    part="",
                    trajectories=path,
                    scores=scored if scored is not None and scored.exists() else None,
                    kind="rollout",
                    label=f"{name}rollout {number}" + (f", part {place + 1}" if len(rollouts) > 1 else ""),
                    iteration=int(number),
                    policy=_policy(run, entry),
                    split="train",
                )


def _evaluations(run: FinishedRun) -> Iterator[Source]:
    known = dict(_named_evaluations(run))
    for entry in run.of_stage("evaluate", "join"):
        policy, split, iteration = known.get(entry.name, ("", "", None))
        label = ", ".join(word for word in (policy, split) if word) or str(entry.made.get("label") or entry.name)
        for part in PARTS:
            folder = entry.path / part
            if (folder / TRAJECTORIES).exists() and (folder / SCORES).exists():
                where = folder / TRAJECTORIES, folder / SCORES
                yield Source(entry.name, part, *where, "evaluation", f"{label}, {part}", iteration, policy, split)


def _named_evaluations(run: FinishedRun) -> Iterator[tuple[str, tuple[str, str, int | None]]]:
    """Entry to policy, split and iteration, as the lineage, or the loop of a run that goes on, names them."""
    try:
        lineage = run.lineage
    except DataError:
        lineage = {}
    for folder in loops_of(run.record.path).values():
        validations = read_json(folder / LOOP_FILE).get("validations") or {}
        for number, entry in validations.items():
            name = entry if isinstance(entry, str) else str((entry or {}).get("entry", ""))
            yield name, (f"iteration {number}", "validation", int(number))
    for policy, splits in (lineage.get("evaluations") or {}).items():
        for split, made in splits.items():
            yield str(made.get("entry", "")), (policy, split, None)


def _policy(run: FinishedRun, entry: str) -> str:
    made = next((one.made for one in run.entries if one.name == entry), {})
    policy = (made.get("arguments") or {}).get("policy") or {}
    return str(policy.get("policy") or "")


NO_PART = "-"


def source_at(run: FinishedRun, entry: str, part: str) -> Source:
    """The episodes of a stored result.

    Raises:
        NotThere: the run has no such result, or it holds no episodes.
    """
    entry_path(run, entry)
    wanted = "" if part == NO_PART else part
    for source in sources_of(run):
        if source.entry == entry and source.part == wanted:
            return source
    raise NotThere(f"{entry}: holds no episodes of the part {part!r}")


def rollouts_of(run: FinishedRun) -> dict[int, list[Source]]:
    """The stored rollouts of a run's own loop and its specialists', by iteration."""
    found: dict[int, list[Source]] = {}
    for source in sources_of(run):
        if source.kind == "rollout" and source.iteration is not None:
            found.setdefault(source.iteration, []).append(source)
    return found
