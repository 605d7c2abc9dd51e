"""The figures of a run: what `--json` prints and what MLflow keeps at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tracewheel.core.files import read_table
from tracewheel.core.store import Entry
from tracewheel.evaluation.changes import paired_rates
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.report.results import Estimate, PolicyResult

FIGURES = {"success": "greedy", "sampled": "sampled", "harder": "harder"}


def costs(entries: Iterable[Entry]) -> dict[str, Any]:
    """Seconds and tokens by stage, as spent when each result was made, training episodes, and the stages wholly reused."""
    seconds: dict[str, float] = {}
    tokens: dict[str, int] = {}
    made, episodes = set(), 0
    sampling = {"rollout": "rollout", "collect": "rollout", "evaluate": "evaluate"}
    for entry in entries:
        seconds[entry.stage] = seconds.get(entry.stage, 0.0) + entry.seconds
        if kind := sampling.get(entry.stage):
            tokens[kind] = tokens.get(kind, 0) + round(entry.result["generated_tokens"])
        if kind == "rollout":
            episodes += round(entry.result["episodes"])
        if not entry.reused:
            made.add(entry.stage)
    return {
        "seconds": {stage: round(value, 2) for stage, value in seconds.items()},
        "tokens": tokens,
        "episodes": episodes,
        "cached": [stage for stage in seconds if stage not in made],
    }


def estimates(policies: Sequence[PolicyResult]) -> dict[str, dict[str, Estimate | None]]:
    """`success` and `harder` (greedy) and `sampled`, by policy; None where a policy has no such figure."""
    return {name: {row.key: getattr(row, field) for row in policies} for name, field in FIGURES.items()}


def harder_differences(evaluations: Mapping[str, Mapping[str, Entry]]) -> dict[str, dict[str, Any]]:
    """How the policy after RL compares with each other one on the harder tier, task by task (greedy, 95%)."""
    results = {name: read_table(splits["harder"].path / RESULTS_FILE) for name, splits in evaluations.items()}
    new, differences = results.pop("rl"), {}
    for name, table in results.items():
        found, interval = paired_rates(new, table, "greedy")
        if interval:
            differences[name] = {"difference": float(found.mean()), "interval": list(interval)}
    return differences
