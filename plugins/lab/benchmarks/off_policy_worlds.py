"""The off-policy preview where its assumptions fail: how often its 95% interval covers the truth, and how often it refuses.

    python plugins/lab/benchmarks/off_policy_worlds.py --out benchmarks/results/off_policy_worlds.json

A log has 1,024 episodes, 8 each of 128 tasks. An episode has a trait z, standard normal under the logged policy; the challenger
moves its mean by d, so that weights are log-normal, exp(d z - d^2 / 2). Success has the probability Phi(a + 0.8 z), where a is
normal by task.

- heavy weights: d from 0.5 to 2.5.
- behaviour missing: a share of the episodes has no log-probabilities, and these succeed half as often.
- never logged: a share of what the challenger does is not in the log at all, and succeeds half as often.
- clustered users: 32 users have four tasks each, and differ in success.

Figures: intervals of logs that are not refused which cover the truth; refused logs; the bias of the estimate. Errors are two
standard errors of the simulation.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from scipy.special import ndtr

from tracewheel_lab.off_policy import LoggedEpisodes, preview

SEED, TASKS, EACH, LOGS = 47, 128, 8, 400
SLOPE, TASK_SPREAD, USER_SPREAD = 0.8, 0.7, 1.0


def world(stream: np.random.Generator, *, move: float = 0.7, missing: float = 0.0, never: float = 0.0, users: int = 0) -> Any:
    """A log, and the challenger's true mean reward."""
    task = np.repeat(np.arange(TASKS), EACH)
    level = stream.normal(0.0, TASK_SPREAD, TASKS)
    of = np.arange(TASKS) % users if users else np.arange(TASKS)
    if users:
        level = level + stream.normal(0.0, USER_SPREAD, users)[of]
    spread = TASK_SPREAD**2 + (USER_SPREAD**2 if users else 0.0)
    z = stream.normal(size=len(task))
    chance = ndtr(level[task] + SLOPE * z)
    kept = stream.random(len(task)) >= missing
    rewards = (stream.random(len(task)) < np.where(kept, chance, chance / 2)).astype(float)
    weights = move * z - move**2 / 2 + math.log1p(-never)
    logged = float(ndtr(SLOPE * move / math.sqrt(1 + SLOPE**2 + spread)))
    truth = logged * (1 - missing / 2) * (1 - never) + never * logged / 2
    given: dict[str, Any] = {"users": of[task][kept].astype(str) if users else None, "missing": int((~kept).sum())}
    known = {field.name for field in fields(LoggedEpisodes)}
    log = LoggedEpisodes(
        [weights[[place]] for place in np.flatnonzero(kept)],
        rewards[kept],
        task[kept].astype(str),
        np.full(int(kept.sum()), "family"),
        **{name: value for name, value in given.items() if name in known},
    )
    return log, truth


WORLDS: dict[str, dict[str, Any]] = {
    "as assumed": {},
    **{f"heavy weights, d = {move:g}": {"move": move} for move in (0.5, 1.0, 1.5, 2.0, 2.5)},
    **{f"behaviour missing in {share:.0%}": {"missing": share} for share in (0.05, 0.15, 0.3)},
    **{f"{share:.0%} never logged": {"never": share} for share in (0.05, 0.15, 0.3)},
    "clustered users": {"users": 32},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=LOGS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    lines = ["| world | refused | estimator | covers, of those answered | covers or refused | bias | half-width |"]
    lines += ["|---|---:|---|---:|---:|---:|---:|"]
    for number, (name, chosen) in enumerate(WORLDS.items()):
        found = []
        for log in range(options.logs):
            episodes, truth = world(np.random.default_rng([SEED, number, log]), **chosen)
            found.append((preview(episodes), truth))
        refused = np.array([bool(one.refusal) for one, _ in found])
        for estimator in ("self_normalised", "doubly_robust"):
            each = [(one.estimates[estimator], truth) for one, truth in found]
            covers = np.array([own.interval.low <= truth <= own.interval.high for own, truth in each])
            answered = covers[~refused]
            row = {
                "world": name,
                "estimator": estimator,
                "logs": len(found),
                "refused": float(refused.mean()),
                "covers_answered": float(answered.mean()) if len(answered) else None,
                "covers_or_refused": float((covers | refused).mean()),
                "bias": float(np.mean([own.value - truth for own, truth in each])),
                "half_width": float(np.mean([own.interval.high - own.interval.low for own, _ in each]) / 2),
            }
            rows.append(row)
            answers = "-" if row["covers_answered"] is None else f"{row['covers_answered']:.1%} ± {_error(answered):.1%}"
            lines.append(
                f"| {name} | {row['refused']:.0%} | {estimator} | {answers} | {row['covers_or_refused']:.1%} ± "
                f"{_error(covers | refused):.1%} | {row['bias']:+.3f} | {row['half_width']:.3f} |"
            )
    measuring.emit({"seed": SEED, "machine": measuring.machine(1), "rows": rows}, "\n".join(lines), options.out)


def _error(hits: np.ndarray) -> float:
    """Two standard errors, with one more of each kind."""
    rate = (hits.sum() + 1) / (len(hits) + 2)
    return 2 * math.sqrt(rate * (1 - rate) / len(hits))


if __name__ == "__main__":
    main()
