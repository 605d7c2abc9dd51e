"""What a run may gain, from the room that its tasks leave and the gains of past runs, and what it costs.

**Room.** A group of rollouts teaches only where some of them succeed and some fail. With the posterior Beta(a, b) of a task's
pass rate p and groups of G, that happens with chance s = 1 - E[p^G] - E[(1 - p)^G], and what can still be gained on the task
is 1 - E[p]. The room of a run is the mean of s (1 - E[p]) over its training tasks: a mastered task leaves none, nor does one
that always fails.

**Gain.** The gain that the gate measures is a share of the room: gain = room (b0 + b1 new + noise), where `new` is the share
of training tasks with new evidence. A Bayesian linear regression on past runs with a normal-inverse-gamma prior gives the
predictive distribution of the next one, a Student t (Gelman et al. 2013, chapter 14). The noise of the gate's measurement is
part of it. The prior says 15% of the room and counts as one run, so without past runs the interval is wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from tracewheel import DataError, FinishedRun, find_runs, parse_json, read_json, read_table

CONFIDENCE = 0.8
PRIOR_MEAN, PRIOR_PRECISION = np.array([0.15, 0.0]), np.diag([1.0, 4.0])
PRIOR_SHAPE, PRIOR_SCALE = 1.0, 0.02  # of the noise's variance: two degrees of freedom, about 0.14 squared
RECENT = 5  # runs whose costs are averaged
LEAST_ROOM = 0.005
DECISION_FILE, JOURNAL_FILE = "decision.json", "decisions.jsonl"
POSTERIOR_FILE, COUNTS_FILE = "sampler.json", "evidence.json"


@dataclass(frozen=True)
class PastRun:
    """A complete run.

    Attributes:
        gain: What its gate measured, as a share; None where it is not known.
        room: At its start; None where the store has lost its tasks.
        new: Share of its training tasks with new evidence.
    """

    gain: float | None
    room: float | None
    new: float


@dataclass(frozen=True)
class Gain:
    """The expected gain of a run, as a share, with its interval at `CONFIDENCE`, and the past runs that it is learnt from."""

    mean: float
    low: float
    high: float
    runs: int

    def says(self) -> str:
        """In a few words, in points."""
        source = f"{self.runs} past runs" if self.runs != 1 else "one past run"
        ends = f"{100 * self.low:.1f} to {100 * self.high:.1f}"
        return f"expected gain {100 * self.mean:.1f} points ({CONFIDENCE:.0%}: {ends}, {source})"


def room_of(posteriors: Iterable[tuple[float, float]], group_size: int) -> float:
    """The room that tasks leave, as a share.

    Args:
        posteriors: (alpha, beta) of each training task's pass rate.
        group_size: Rollouts in a group.
    """
    pairs = np.array(list(posteriors), dtype=np.float64).reshape(-1, 2)
    if not len(pairs):
        return 0.0
    alpha, beta = pairs.T
    whole = special.betaln(alpha, beta)
    all_solved = np.exp(special.betaln(alpha + group_size, beta) - whole)
    all_failed = np.exp(special.betaln(alpha, beta + group_size) - whole)
    return float(((1.0 - all_solved - all_failed) * beta / (alpha + beta)).mean())


def expected_gain(room: float, new: float, past: Sequence[PastRun]) -> Gain:
    """The predictive distribution of the gain that the next gate measures.

    Args:
        room: Of the next run.
        new: Share of its training tasks with new evidence.
        past: Past runs. Those without a gain or with next to no room teach nothing.
    """
    known = [run for run in past if run.gain is not None and run.room is not None and run.room >= LEAST_ROOM]
    features = np.array([[1.0, run.new] for run in known]).reshape(-1, 2)
    shares = np.array([float(run.gain or 0.0) / float(run.room or 1.0) for run in known])
    precision = PRIOR_PRECISION + features.T @ features
    weighted = PRIOR_PRECISION @ PRIOR_MEAN + features.T @ shares
    mean = np.linalg.solve(precision, weighted)
    shape = PRIOR_SHAPE + len(known) / 2
    scale = PRIOR_SCALE + 0.5 * float(shares @ shares + PRIOR_MEAN @ PRIOR_PRECISION @ PRIOR_MEAN - mean @ weighted)
    ahead = np.array([1.0, new])
    spread = math.sqrt(max(scale, 1e-12) / shape * (1.0 + float(ahead @ np.linalg.solve(precision, ahead))))
    half = float(special.stdtrit(2 * shape, 0.5 + CONFIDENCE / 2)) * spread
    middle = float(ahead @ mean)
    return Gain(room * middle, max(-1.0, room * (middle - half)), min(1.0, room * (middle + half)), len(known))


def next_run(work_dir: Path, new_tasks: int | None = None) -> dict[str, Any]:
    """What the next run of a work folder may gain, and what it costs, from the records of the complete ones.

    Args:
        work_dir: The work folder.
        new_tasks: Training tasks with new evidence; by default those that the last decision counted.

    Returns:
        `room`, `new`, `gain`, its `interval`, `cost` (means of the last runs; None where no run has recorded its own), and
        `past`: for each complete run, the oldest first, `run`, `verdict`, `gain`, `room`, `new`, `cost` and `per_point`.

    Raises:
        DataError: no run is complete, or the store has lost the tasks of the last one.
    """
    runs = [FinishedRun(record) for record in reversed(find_runs(work_dir)) if record.summary]
    if not runs:
        raise DataError(f"{work_dir}: no complete run, from which the next one could be estimated")
    past = [past_run(run) for run in runs]
    last, kept = runs[-1], work_dir / POSTERIOR_FILE
    played = read_json(kept).get("evidence", {}) if kept.is_file() else {}
    posteriors = training_posteriors(last.curated, played)
    counted = _decided(work_dir) if new_tasks is None else new_tasks
    new = min(1.0, counted / max(1, len(posteriors)))
    room = room_of(posteriors, last.settings["rollout"]["group_size"])
    gain = expected_gain(room, new, past)
    rows = [_row(run, known) for run, known in zip(runs, past, strict=True)]
    costs = [row["cost"] for row in rows if row["cost"]][-RECENT:]
    cost = {name: _mean([one[name] for one in costs]) for name in ("seconds", "tokens", "money")} if costs else None
    return {
        "work_dir": str(work_dir),
        "room": room,
        "new": new,
        "gain": gain.mean,
        "interval": [gain.low, gain.high],
        "runs": gain.runs,
        "says": gain.says(),
        "cost": cost and {**cost, "currency": costs[-1]["currency"]},
        "past": rows,
    }


def training_posteriors(curated: Path, played: Mapping[str, Sequence[float]]) -> list[tuple[float, float]]:
    """(alpha, beta) of each training task: from the rollouts of earlier runs, else from the logged agent.

    Args:
        curated: Output of curate.
        played: Decayed successes and failures in rollouts, by task.
    """
    logged = read_json(curated / COUNTS_FILE)
    tasks = read_table(curated / "tasks.parquet", ["id", "split"])
    counts = [played.get(task) or logged.get(task) or (0.0, 0.0) for task in tasks.loc[tasks["split"] == "train", "id"]]
    return [(1.0 + successes, 1.0 + failures) for successes, failures in counts]


def past_run(run: FinishedRun) -> PastRun:
    """A complete run, as it stood when it began."""
    gain = run.summary.get("gate", {}).get("difference")
    try:
        curated = run.curated
    except DataError:
        return PastRun(gain, None, 0.0)
    began = ((run.record.started() or {}).get("sampler") or {}).get("evidence", {})
    posteriors = training_posteriors(curated, began)
    path = run.record.path / DECISION_FILE
    evidence = (read_json(path) if path.is_file() else {}).get("evidence", {})
    new = min(1.0, _counted(evidence) / max(1, len(posteriors)))
    return PastRun(gain, room_of(posteriors, run.settings["rollout"]["group_size"]), new)


def _decided(work_dir: Path) -> int:
    """Training tasks with new evidence, as the newest decision counted them; 0 without one, or where its run has begun."""
    path = work_dir / JOURNAL_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    last: dict[str, Any] = parse_json(lines[-1]) if lines else {"starts": True}
    return 0 if last["starts"] else _counted(last["evidence"])


def _counted(evidence: Mapping[str, int]) -> int:
    return evidence.get("new_tasks", 0) + evidence.get("moved_tasks", 0)


def _row(run: FinishedRun, known: PastRun) -> dict[str, Any]:
    worth = run.summary.get("worth") or {}
    figures = {"gain": known.gain, "room": known.room, "new": known.new}
    spent = {name: worth.get(name) for name in ("cost", "per_point")}
    return {"run": run.run_id, "verdict": run.gate.get("verdict"), **figures, **spent}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None
