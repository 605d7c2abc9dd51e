"""The curves of a report, from the metrics of the training loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from tracewheel.core.types import BranchReason
from tracewheel.report.report_data import Curve

# Curves of a run whose episodes programs play.
OF_PROGRAMS = ("Fidelity", "Programs' requests", "Branches")
REASONS = [reason for reason in get_args(BranchReason) if reason]
Metrics = Mapping[int, Mapping[str, float | None]]
Points = list[tuple[int, float | None]]

SHARE = (0.0, 1.0)
# Title, note, the metrics in it with their labels, and the bounds of the vertical axis.
TRAINING: list[tuple[str, str, dict[str, str], tuple[float, float] | None]] = [
    ("Reward", "mean of the sampled training rollouts", {"reward": "reward", "success": "success"}, SHARE),
    ("KL", "K3 estimate to the warm start, nats per token", {"kl": "KL"}, None),
    ("Entropy", "of the policy, nats per token", {"entropy": "entropy"}, None),
    ("Length", "tokens per trajectory", {"generated_tokens": "generated", "trajectory_tokens": "total"}, None),
    ("Turns", "assistant turns per trajectory", {"turns": "turns"}, None),
    ("Zero-variance share", "groups without a gradient", {"zero_variance_share": "share"}, SHARE),
    ("Clipped share", "share of tokens at the PPO clip", {"clip_share": "clipped"}, None),
    ("Gradient norm", "before clipping", {"grad_norm": "norm"}, None),
    ("Learning rate", "of the optimiser's steps", {"learning_rate": "rate"}, None),
    ("Curriculum", "variants of failing tasks", {"variants": "variants"}, None),
    (
        "Fidelity",
        "shares of tokens and of rows",
        {"fidelity": "fidelity", "fidelity_tokens": "tokens", "fidelity_rows": "rows"},
        SHARE,
    ),
    (
        "Programs' requests",
        "in an iteration",
        {"requests_unmatched": "unmatched", "requests_refused": "refused"},
        None,
    ),
    ("Branches", "in an iteration, by reason", {f"branches_{reason}": reason.replace("_", " ") for reason in REASONS}, None),
    ("Truncated and unscored", "share of trajectories", {"truncated_share": "truncated", "unscored_share": "unscored"}, SHARE),
]


def training_curves(updates: Metrics, validation: Metrics, best_iteration: int | None) -> list[Curve]:
    """Charts of the measured metrics; a metric that no iteration has is left out."""
    names = list(dict.fromkeys(name for metrics in validation.values() for name in metrics))
    harder = [name for name in names if "harder" in name]
    curves = [
        _curve(
            "Validation success",
            "iteration 0 is where RL starts",
            [n for n in names if n not in harder],
            validation,
            best_iteration,
        ),
        _curve("Harder tier over iterations", "not used to choose", harder, validation, best_iteration),
    ]
    for title, note, labels, bounds in TRAINING:
        series = {label: _points(updates, key) for key, label in labels.items()}
        curves.append(Curve(title, _measured(series), note, bounds))
    return [curve for curve in curves if curve.series]


def _curve(title: str, note: str, names: list[str], metrics: Metrics, marked: int | None) -> Curve:
    series = {name.replace("_", " "): _points(metrics, name) for name in names}
    return Curve(title, _measured(series), note, SHARE, marked)


def _points(metrics: Metrics, key: str) -> Points:
    return [(iteration, metrics[iteration].get(key)) for iteration in sorted(metrics)]


def _measured(series: Mapping[str, Points]) -> dict[str, Points]:
    return {label: points for label, points in series.items() if any(value is not None for _, value in points)}
