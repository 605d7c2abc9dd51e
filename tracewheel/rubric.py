"""A rubric: weighted verifiers that turn a trajectory into a score with its breakdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tracewheel.config import RubricConfig
from tracewheel.types import Score, Task, Trajectory
from tracewheel.verifiers import Verifier, make_verifier

TASK_VERIFIER = "task"


class Rubric:
    """Scores trajectories of the given tasks.

    The breakdown of a scored trajectory holds, for each verifier, its total under the verifier's
    kind and its parts under `kind.part`; `success` is 1 when the first verifier gives its full mark;
    `malformed_penalty` is what malformed calls cost, when the rubric charges for them. The score's
    total is the weighted mean of the verifiers' totals less that penalty, and never below 0.

    Raises:
        ConfigError: a verifier that the rubric or a task names does not exist. Nothing is scored then.
    """

    def __init__(self, config: RubricConfig, tasks: Iterable[Task]) -> None:
        self._config = config
        named = {term.kind for term in config.verifiers} - {TASK_VERIFIER}
        if any(term.kind == TASK_VERIFIER for term in config.verifiers):
            named |= {task.verifier for task in tasks}
        self._verifiers: dict[str, Verifier] = {kind: make_verifier(kind) for kind in sorted(named)}

    def score(self, task: Task, trajectory: Trajectory) -> Score:
        """The score of one trajectory.

        A rollout that the machinery failed has status `infrastructure_failed`. When a verifier raises
        or gives a number outside [0, 1] the status is `unscored` and the detail says why. Neither has
        a total: what was not judged is not a failure of the policy.
        """
        if trajectory.stop_reason == "infrastructure_failed":
            return _without_total(trajectory, "infrastructure_failed", trajectory.detail)
        breakdown: dict[str, float] = {}
        totals = []
        for term in self._config.verifiers:
            kind = task.verifier if term.kind == TASK_VERIFIER else term.kind
            try:
                total, parts = self._verifiers[kind].verify(task, trajectory.final_state)
                total, parts = float(total), {f"{kind}.{name}": float(value) for name, value in parts.items()}
            except Exception as error:  # a verifier may be anyone's code: whatever it raises, this episode is unscored
                return _without_total(trajectory, "unscored", f"verifier {kind}: {type(error).__name__}: {error}")
            if not 0.0 <= total <= 1.0 or not all(map(math.isfinite, parts.values())):
                return _without_total(trajectory, "unscored", f"verifier {kind}: gave {total} with {parts}, outside 0 to 1")
            totals.append(total)
            breakdown |= {kind: total, **parts}
        breakdown["success"] = float(totals[0] >= 1.0)
        weights = [term.weight for term in self._config.verifiers]
        reward = sum(weight * total for weight, total in zip(weights, totals, strict=True)) / sum(weights)
        if self._config.malformed_penalty:
            malformed = sum(turn["malformed"] for turn in trajectory.turns)
            breakdown["malformed_penalty"] = self._config.malformed_penalty * malformed
            reward = max(0.0, reward - breakdown["malformed_penalty"])
        return Score(trajectory.id, trajectory.task_id, trajectory.group, "scored", reward, breakdown)


def success_of(score: Score | Mapping[str, float]) -> float:
    """1 or 0 for a scored trajectory, NaN for any other. Takes a score or its breakdown."""
    breakdown = score.breakdown if isinstance(score, Score) else score
    return breakdown.get("success", math.nan)


def _without_total(trajectory: Trajectory, status: str, detail: str) -> Score:
    return Score(trajectory.id, trajectory.task_id, trajectory.group, status, None, {}, detail)  # type: ignore[arg-type]
