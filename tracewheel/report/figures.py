"""The figures of a run as DVC reads them: grouped metrics, and a table for each plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.files import read_json, write_json
from tracewheel.evaluation.gate import GATE_FILE
from tracewheel.report.results import AFTER, DEPLOYED, Estimate, Results, results_of

METRICS_FILE = "metrics.json"
LEARNING_FILE, TRAINING_FILE = "learning.csv", "training.csv"
TIERS_FILE, FAMILIES_FILE = "tiers.csv", "families.csv"
# Of the last iteration that has them.
TRAINING = ("reward", "kl", "entropy", "learning_rate")
CURVE = ("reward", "success", "kl", "entropy")


@dataclass(frozen=True)
class RunFolders:
    """Where the results of a run lie, whoever made it.

    Attributes:
        curated, evaluations: As `results_of` takes them.
        gate: The record of the verdict.
        updates: Iteration to the metrics of its update.
        validation: Iteration (0 is the start) to `greedy` and `sampled` success on the validation split.
        best_iteration: The chosen iteration.
    """

    curated: Path
    evaluations: Mapping[str, Sequence[Path]]
    gate: Mapping[str, Any]
    updates: Mapping[int, Mapping[str, float]]
    validation: Mapping[int, Mapping[str, float | None]]
    best_iteration: int | None


def write_figures(run: RunFolders, loop: Path, out: Path) -> dict[str, Any]:
    """Write metrics and plots of a run.

    Args:
        run: The run's results.
        loop: Output of `tracewheel stage improve`, for what the training has cost.
        out: Folder to write.

    Returns:
        The metrics, as in `metrics.json`: `eval`, `gate`, `train` and `cost`, without what is unknown.

    Raises:
        DataError: a file is missing.
    """
    import pandas as pd

    data = results_of(run.curated, run.evaluations)
    evaluations = [folder for folders in run.evaluations.values() for folder in folders]
    metrics = {
        "cost": cost_of(loop, evaluations),
        "eval": eval_metrics(data),
        "gate": gate_metrics(run.gate),
        "train": train_metrics(run),
    }
    write_json(out / METRICS_FILE, metrics)
    validation = [{"iteration": number, **rates} for number, rates in sorted(run.validation.items())]
    pd.DataFrame(validation, columns=["iteration", "greedy", "sampled"]).to_csv(out / LEARNING_FILE, index=False)
    training = [{"iteration": number, **run.updates[number]} for number in sorted(run.updates)]
    pd.DataFrame(training, columns=["iteration", *CURVE]).to_csv(out / TRAINING_FILE, index=False)
    for name, headings in {
        TIERS_FILE: {"By tier": ""},
        FAMILIES_FILE: {"By family, held-out": ", held-out", "By family, harder tier": ", harder"},
    }.items():
        columns = ["group", "policy", "success", "low", "high", "tasks"]
        pd.DataFrame(list(_bars(data, headings)), columns=columns).to_csv(out / name, index=False)
    return metrics


def eval_metrics(data: Results) -> dict[str, dict[str, float]]:
    """Success by policy: greedy on held-out and harder tasks; of the policy after RL, sampled success too."""
    found: dict[str, dict[str, float]] = {}
    for row in data.policies:
        if row.key == DEPLOYED:
            continue  # the same in every run on these logs; the plots show it
        estimates = {"held_out": row.greedy, "harder": row.harder} | ({"sampled": row.sampled} if row.key == AFTER else {})
        found[row.key] = {name: estimate.value for name, estimate in estimates.items() if estimate}
    return found


def gate_metrics(gate: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict, and the difference to the baseline with its interval."""
    low, high = gate.get("interval") or (None, None)
    figures = {
        "verdict": gate.get("verdict"),
        "difference": gate.get("difference"),
        "expected_gain": gate.get("expected_gain"),
        "low": low,
        "high": high,
        "p_value": gate.get("p_value"),
    }
    return {name: value for name, value in figures.items() if value is not None}


def train_metrics(run: RunFolders) -> dict[str, Any]:
    """Iterations, the chosen one and its success on the validation split; how the training ended."""
    figures: dict[str, Any] = {"iterations": len(run.updates), "best_iteration": run.best_iteration}
    if run.best_iteration is not None:
        rates = run.validation.get(run.best_iteration, {})
        figures |= {f"validation_{mode}": rates.get(mode) for mode in ("greedy", "sampled")}
    for name in TRAINING:
        figures[name] = _last(run.updates, name)
    return {name: value for name, value in figures.items() if value is not None}


def cost_of(loop: Path, evaluations: Iterable[Path]) -> dict[str, int]:
    """Episodes of the training, and the tokens that training and evaluations generated. Times are no stage's output."""
    rollouts = [read_json(path) for path in sorted(loop.rglob("rollout*/metrics.json"))]
    evaluated = [read_json(path / "evaluation.json") for path in evaluations]
    return {
        "training_episodes": sum(round(item["episodes"]) for item in rollouts),
        "training_tokens": sum(round(item["generated_tokens"]) for item in rollouts),
        "evaluation_tokens": sum(round(item["generated_tokens"]) for item in evaluated),
    }


def read_gate(folder: Path) -> dict[str, Any]:
    """The verdict that `tracewheel champion promote --out` wrote."""
    verdict: dict[str, Any] = read_json(folder / GATE_FILE)
    return verdict


def _last(updates: Mapping[int, Mapping[str, Any]], name: str) -> Any:
    """A metric of the last iteration that has it."""
    values = (updates[number].get(name) for number in sorted(updates, reverse=True))
    return next((value for value in values if value is not None), None)


def _bars(data: Results, headings: Mapping[str, str]) -> Iterable[dict[str, Any]]:
    """A row for each policy in each group; `headings` maps a heading of the report to what follows its groups' names."""
    for heading, after in headings.items():
        for group in data.groups.get(heading, ()):
            for policy, rate in group.rates.items():
                yield {"group": f"{group.name}{after}", "policy": policy, "tasks": group.n, **_estimate(rate)}


def _estimate(rate: Estimate) -> dict[str, float]:
    return {"success": rate.value, "low": rate.low, "high": rate.high}
