"""The curves of a run, while it goes on and afterwards: learning, both rubrics, and what happened in the rollouts."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from tracewheel.core.errors import DataError
from tracewheel.core.run_record import LOOP_FILE
from tracewheel.core.types import BranchReason, Fault
from tracewheel.dashboard.measured import Evaluation, Iteration, iterations_of, read_small, validations_of
from tracewheel.dashboard.rollout_digest import Digest
from tracewheel.dashboard.text import seen
from tracewheel.evaluation.evaluate import HELD_BACK, TRAINING
from tracewheel.report.doctor.run_records import RUBRICS, marks_of
from tracewheel.report.finished_run import FinishedRun
from tracewheel.report.results import Estimate, estimate_of

Points = Sequence[tuple[int, float | None]]
SHARE = (0.0, 1.0)
REASONS = [reason for reason in get_args(BranchReason) if reason]
OF_PROGRAMS = ("Fidelity", "Programs' requests", "Branches")  # of a run whose episodes programs play
# Title, note, the metrics in it with their labels, and the bounds of the vertical axis.
OF_UPDATES: list[tuple[str, str, dict[str, str], tuple[float, float] | None]] = [
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
    (OF_PROGRAMS[0], "shares of tokens and of rows",
     {"fidelity": "fidelity", "fidelity_tokens": "tokens", "fidelity_rows": "rows"}, SHARE),
    (OF_PROGRAMS[1], "in an iteration", {"requests_unmatched": "unmatched", "requests_refused": "refused"}, None),
    (OF_PROGRAMS[2], "in an iteration, by reason", {f"branches_{name}": name.replace("_", " ") for name in REASONS}, None),
    ("Truncated and unscored", "share of trajectories",
     {"truncated_share": "truncated", "unscored_share": "unscored"}, SHARE),
]  # fmt: skip
DIVERSITY = {
    "group_diversity": "groups, distance",
    "distinct_tool_sequences": "distinct runs of calls",
    "zero_variance_share": "groups alike in reward",
}
SUCCESS = "success"
MOST_LINES, MOST_PARTS = 6, 8  # of a chart
LEAST_CHANGE = 0.02  # of a mean; less than that is no trend
CLIMBS = "the policy may have found how to please this part instead of the task: read its best-paid failures"


@dataclass(frozen=True)
class Curve:
    """A chart over iterations. `series` maps a label to (iteration, value) points; None is a gap.

    `bounds` fixes the vertical axis; `marked` is an iteration to highlight, such as the chosen one. `bands` maps labels of
    `series` to (iteration, low, high). `axis` names what is counted along the horizontal axis, and `links` are addresses that
    its points lead to.
    """

    title: str
    series: Mapping[str, Points]
    note: str = ""
    bounds: tuple[float, float] | None = None
    marked: int | None = None
    bands: Mapping[str, Sequence[tuple[int, float, float]]] = field(default_factory=dict)
    axis: str = "iteration"
    links: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BothRubrics:
    """What a policy gets by both rubrics, `training` and `held_back`, on the same episodes, by rubric."""

    key: str
    reward: Mapping[str, Estimate]
    success: Mapping[str, Estimate]


def learning_curves(run: FinishedRun, loop: Path, evaluations: list[Evaluation], chosen: int | None = None) -> list[Curve]:
    """The curves of a loop: validation with its intervals, both rubrics, the metrics of the updates, time.

    Args:
        run: The run.
        loop: The folder with the `loop.json`.
        evaluations: Of the run.
        chosen: The iteration that was chosen; None before that.
    """
    validations, iterations = validations_of(run, loop, evaluations), iterations_of(run, loop)
    values = {
        number: {name: rate.value if rate else None for name, rate in rates.items()} for number, rates in validations.items()
    }
    curves = training_curves({one.number: one.metrics for one in iterations}, values, chosen)
    curves = [_with_bands(curve, validations) for curve in curves]
    stages = dict.fromkeys(stage for one in iterations for stage in one.seconds)
    seconds = {name: [(one.number, one.seconds.get(name)) for one in iterations] for name in stages}
    time = _curve("Time", "seconds of an iteration by stage", seconds)
    return [*curves[:1], *judge_curves(run, loop), *curves[1:], *([time] if time else [])]


def training_curves(
    updates: Mapping[int, Mapping[str, float | None]], validation: Mapping[int, Mapping[str, float | None]], chosen: int | None
) -> list[Curve]:
    """Charts of the measured metrics; a metric that no iteration has is left out."""
    names = list(dict.fromkeys(name for metrics in validation.values() for name in metrics))
    of_harder = [name for name in names if "harder" in name]
    on_validation = {name: name.replace("_", " ") for name in names if name not in of_harder}
    curves = [
        _curve("Validation success", "iteration 0 is where RL starts", _series(validation, on_validation), SHARE, chosen),
        _curve(
            "Harder tier over iterations", "not used to choose",
            _series(validation, {name: name.replace("_", " ") for name in of_harder}), SHARE, chosen,
        ),
        *(_curve(title, note, _series(updates, labels), bounds) for title, note, labels, bounds in OF_UPDATES),
    ]  # fmt: skip
    return [curve for curve in curves if curve]


def judge_curves(run: FinishedRun, loop: Path) -> list[Curve]:
    """The mean reward of both rubrics by validation; none without one that is held back, or where scores cannot be read."""
    entries = read_small(loop / LOOP_FILE).get("validations") or {}
    with contextlib.suppress(DataError):
        return rubric_curves({int(number): run.store / str(entry) for number, entry in entries.items()})
    return []


def rubric_curves(validations: Mapping[int, Path]) -> list[Curve]:
    """The mean reward of both rubrics by validation, with their intervals; none without a rubric that is held back.

    Args:
        validations: Iteration to the folder of its evaluation.

    Raises:
        DataError: scores cannot be read.
    """
    found = {number: both for number, folder in sorted(validations.items()) if (both := rubrics_of("", folder))}
    if not found:
        return []
    rewards = {
        words: {number: both.reward[name] for number, both in found.items()}
        for name, words in {TRAINING: "training", HELD_BACK: "held back"}.items()
    }
    series = {words: [(number, one.value) for number, one in own.items()] for words, own in rewards.items()}
    bands = {words: [(number, one.low, one.high) for number, one in own.items()] for words, own in rewards.items()}
    return [Curve("Both rubrics", series, "mean reward on validation tasks, with 95% intervals", bands=bands)]


def rubric_rows(run: FinishedRun, evaluations: Mapping[str, Evaluation]) -> list[BothRubrics]:
    """What each policy gets by both rubrics on held-out tasks; without those whose scores cannot be read."""
    found = []
    for policy, one in evaluations.items():
        with contextlib.suppress(DataError):
            found.append(rubrics_of(policy, run.store / one.entry))
    return [both for both in found if both is not None]


def rubrics_of(key: str, folder: Path) -> BothRubrics | None:
    """A policy's means by both rubrics over the tasks that both scored; None where its evaluation has not both.

    Raises:
        DataError: scores cannot be read.
    """
    marks = marks_of(folder)
    table = None if marks is None else marks.dropna()
    if table is None or table.empty:
        return None
    means = {str(name): one for name in table if (one := estimate_of(table[name]))}
    return BothRubrics(key, {name: means[name] for name in RUBRICS}, {name: means[f"{name}_success"] for name in RUBRICS})


def rollout_curves(digests: Mapping[int, Digest], iterations: Sequence[Iteration]) -> list[Curve]:
    """Why episodes stop, who is at fault, flaws, the parts of the reward, diversity, and what an episode costs."""
    parts = list(dict.fromkeys(name for one in iterations for name in one.breakdown))[:MOST_PARTS]
    metrics = {one.number: one.metrics for one in iterations}
    curves = [
        _shares(digests, "Stop reasons", "share of episodes", lambda one: one.reasons, lambda one: one.episodes, SHARE),
        _shares(
            digests, "Who is at fault", "share of episodes that went wrong", lambda one: one.at_fault, lambda one: one.episodes,
            most=len(get_args(Fault)),
        ),
        _shares(digests, "Flaws", "share of episodes that have one", lambda one: one.flaws, lambda one: one.read),
        _curve("Parts of the reward", "mean of the scored episodes", {name: _part(iterations, name) for name in parts}),
        _curve("Diversity within groups", "0: all alike", _series(metrics, DIVERSITY), SHARE),
        _curve("Time of rollouts", "all of a batch together", {"seconds for an episode": [_speed(one) for one in iterations]}),
    ]  # fmt: skip
    return [curve for curve in curves if curve]


def part_curves(iterations: Sequence[Iteration]) -> list[Curve]:
    """Each part of the reward with the success beside it; first those that climbed while success fell.

    They compare the means of the first and the last third of the iterations. Without a part beside the success, or without a
    success, there are none.
    """
    success = _part(iterations, SUCCESS)
    if len([value for _, value in success if value is not None]) < 2:
        return []
    fell = _change(success) < -LEAST_CHANGE
    apart, others = [], []
    for name in dict.fromkeys(name for one in iterations for name in one.breakdown if name != SUCCESS):
        points = _part(iterations, name)
        if points == success:
            continue  # the only verifier's total, which is the success
        series = {name.replace("_", " "): points, SUCCESS: success}
        if fell and _change(points) > LEAST_CHANGE:
            apart.append(Curve(f"{seen(name)}: climbs while success falls", series, CLIMBS))
        else:
            others.append(Curve(seen(name), series, "its mean, and the success"))
    return apart + others


def _curve(
    title: str,
    note: str,
    series: Mapping[str, Points],
    bounds: tuple[float, float] | None = None,
    marked: int | None = None,
) -> Curve | None:
    """A curve of the series that have a value; None where none has."""
    known = {label: points for label, points in series.items() if any(value is not None for _, value in points)}
    return Curve(title, known, note, bounds, marked) if known else None


def _series(metrics: Mapping[int, Mapping[str, float | None]], labels: Mapping[str, str]) -> dict[str, Points]:
    return {label: [(number, metrics[number].get(name)) for number in sorted(metrics)] for name, label in labels.items()}


def _with_bands(curve: Curve, validations: Mapping[int, Mapping[str, Estimate | None]]) -> Curve:
    bands: dict[str, list[tuple[int, float, float]]] = {}
    for number, rates in validations.items():
        for name, rate in rates.items():
            label = name.replace("_", " ")
            if rate is not None and (number, rate.value) in list(curve.series.get(label, ())):
                bands.setdefault(label, []).append((number, rate.low, rate.high))
    return replace(curve, bands=bands) if bands else curve


def _shares(
    digests: Mapping[int, Digest],
    title: str,
    note: str,
    counts: Callable[[Digest], Counter[str]],
    of: Callable[[Digest], int],
    bounds: tuple[float, float] | None = None,
    most: int = MOST_LINES,
) -> Curve | None:
    """The most frequent of some counts as shares, iteration by iteration."""
    totals: Counter[str] = Counter()
    for digest in digests.values():
        totals.update(counts(digest))
    series = {
        seen(name): [(number, counts(digests[number])[name] / max(1, of(digests[number]))) for number in sorted(digests)]
        for name, _ in totals.most_common(most)
    }
    return _curve(title, note, series, bounds)


def _part(iterations: Sequence[Iteration], name: str) -> Points:
    return [(one.number, one.breakdown.get(name)) for one in iterations]


def _speed(one: Iteration) -> tuple[int, float | None]:
    """Seconds that the rollouts of an iteration took for one episode."""
    seconds, episodes = one.seconds.get("rollout"), one.metrics.get("trajectories") or one.metrics.get("episodes")
    return one.number, seconds / episodes if seconds and episodes else None


def _change(points: Points) -> float:
    """The mean of the last third of the points less that of the first."""
    values = [value for _, value in points if value is not None]
    third = max(1, len(values) // 3)
    return (sum(values[-third:]) - sum(values[:third])) / third if values else 0.0
