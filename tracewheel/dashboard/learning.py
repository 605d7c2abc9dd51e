"""The curves of a run, while it goes on and afterwards: those of its report, with the intervals of the validations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.dashboard.judges import judge_curves
from tracewheel.dashboard.measured import Evaluation, Iteration, iterations_of, validations_of
from tracewheel.report.curves import training_curves
from tracewheel.report.report_data import Curve, Estimate

FIRST = 3  # curves that are open; the others are behind a click


def learning_curves(run: FinishedRun, loop: Path, evaluations: list[Evaluation], chosen: int | None = None) -> list[Curve]:
    """The curves of a loop.

    Args:
        run: The run.
        loop: The folder with the `loop.json`.
        evaluations: Of the run.
        chosen: The iteration that was chosen; None before that.
    """
    validations = validations_of(run, loop, evaluations)
    iterations = iterations_of(run, loop)
    updates = {one.number: one.metrics for one in iterations}
    values = {
        number: {name: rate.value if rate else None for name, rate in rates.items()} for number, rates in validations.items()
    }
    curves = [_with_bands(curve, validations) for curve in training_curves(updates, values, chosen)]
    return [*curves[:1], *judge_curves(run, loop), *curves[1:], *time_curves(iterations)]


def time_curves(iterations: Sequence[Iteration]) -> list[Curve]:
    """What each iteration took, by stage; none where the store does not know it."""
    stages = dict.fromkeys(stage for one in iterations for stage in one.seconds)
    if not stages:
        return []
    series = {stage: [(one.number, one.seconds.get(stage)) for one in iterations] for stage in stages}
    return [Curve("Time", series, "seconds of an iteration by stage")]


def _with_bands(curve: Curve, validations: Mapping[int, Mapping[str, Estimate | None]]) -> Curve:
    bands: dict[str, list[tuple[int, float, float]]] = {}
    for number, rates in validations.items():
        for name, rate in rates.items():
            label = name.replace("_", " ")
            if rate is not None and label in curve.series and (number, rate.value) in list(curve.series[label]):
                bands.setdefault(label, []).append((number, rate.low, rate.high))
    return replace(curve, bands=bands) if bands else curve
