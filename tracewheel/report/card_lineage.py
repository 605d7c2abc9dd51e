"""Rows of a model card from a run's `lineage.json`: digests and counts, and no name of a file, a task or a user.

A run of an earlier version has some of them only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracewheel.report.run_facts import POLICY, RunFacts

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
