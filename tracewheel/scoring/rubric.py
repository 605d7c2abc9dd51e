"""Rubrics: weighted verifiers that score trajectories."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tracewheel.config import RubricConfig
from tracewheel.core.errors import DataError
from tracewheel.core.kinds import parse_kind
from tracewheel.core.types import POLICY_FAULTS, Score, Task, Trajectory
from tracewheel.scoring.adjustments import FLAWED, MALFORMED, OVERLONG, overlong_penalty, with_penalty, with_process_rewards
from tracewheel.scoring.flaws import HALF, LEAST_STEP, flaws_of, offered_tools
from tracewheel.scoring.objectives import PREFIX, objective_values, state_share, weighted
from tracewheel.scoring.turn_rewards import turn_rewards
from tracewheel.scoring.verifiers import AnyVerifier, episode_of, make_verifier, state_progress, verdict_of

TASK_VERIFIER = "task"


class Rubric:
    """Scores trajectories of the given tasks.

    The breakdown of a score holds each verifier's total under its kind and its parts under `kind.part`; `success`, which is
    1 when the first verifier's total is 1; each objective's value under `objective.<name>`; the `process_reward` where the
    environment returned rewards; and each penalty that the rubric has: `malformed_penalty`, `overlong_penalty`,
    `flawed_penalty`. The reward is the weighted mean of the objectives, or of the verifiers' totals where there are no
    objectives. The total is the reward plus the process reward minus the penalties, for failed episodes too; that for
    malformed calls is 1 at most.

    Args:
        config: The rubric.
        tasks: The tasks whose verifiers are needed.
        tool_format: How the policy writes calls, for turn rewards.

    Raises:
        ConfigError: a verifier that the rubric or a task names does not exist.
    """

    def __init__(self, config: RubricConfig, tasks: Iterable[Task], tool_format: str = "hermes") -> None:
        self._config = config
        self._tool_format = tool_format
        named = {term.spec for term in config.verifiers} - {TASK_VERIFIER}
        if any(term.kind == TASK_VERIFIER for term in config.verifiers):
            named |= {task.verifier for task in tasks}
        self._verifiers: dict[str, AnyVerifier] = {kind: make_verifier(kind) for kind in sorted(named)}

    def score(self, task: Task, trajectory: Trajectory) -> Score:
        """The score of one trajectory.

        An infrastructure failure has status `infrastructure_failed`, and an episode that failed through anyone's fault but the
        model's or its harness's is `unscored`. If a verifier raises or returns a number outside
        [0, 1], or an objective's part is missing, the status is `unscored` and `detail` says why. Neither has a total,
        because an unscored episode is not a failure of the policy. If turn rewards cannot be computed, the score keeps its
        total and `detail` says why.
        """
        if trajectory.stop_reason == "infrastructure_failed":
            return without_total(task, trajectory, "infrastructure_failed", trajectory.detail)
        if trajectory.fault not in POLICY_FAULTS:
            detail = f"the fault of the {trajectory.fault}: {trajectory.detail}".removesuffix(": ")
            return without_total(task, trajectory, "unscored", detail)
        breakdown: dict[str, float] = {}
        totals, answers, explanations = [], [], []
        for spec, kind in self._terms(task):
            try:
                found = verdict_of(
                    self._verifiers[spec], task, trajectory.final_state, functools.partial(episode_of, trajectory)
                )
            except Exception as error:  # a verifier is user code: whatever it raises, the episode is unscored
                return without_total(task, trajectory, "unscored", f"verifier {kind}: {type(error).__name__}: {error}")
            total, parts = found.total, {f"{kind}.{name}": value for name, value in found.parts.items()}
            if not 0.0 <= total <= 1.0 or not all(map(math.isfinite, parts.values())):
                return without_total(
                    task, trajectory, "unscored", f"verifier {kind}: gave {total} with {parts}, outside 0 to 1"
                )
            totals.append(total)
            breakdown |= {kind: total, **parts}
            answers.append(found.answer)
            explanations.append((kind, found.explanation))
        breakdown["success"] = float(totals[0] >= 1.0)
        reward = self._mean(totals)
        if self._config.objectives:
            try:
                values = objective_values(self._config.objectives, breakdown, trajectory)
            except DataError as error:
                return without_total(task, trajectory, "unscored", str(error))
            reward = weighted(self._config.objectives, values)
            breakdown |= {f"{PREFIX}{name}": value for name, value in values.items()}
        scored = Score(
            trajectory.id,
            trajectory.task_id,
            trajectory.group,
            "scored",
            reward,
            breakdown,
            family=task.family,
            answer=next(filter(None, answers), ""),
            explanation=_joined(explanations),
        )
        if self._config.turn_rewards:
            scored = self._with_turn_rewards(scored, task, trajectory)
        flawed = bool(breakdown["success"]) and self._flawed(scored, task, trajectory, totals)
        scored = with_process_rewards(scored, trajectory, self._config.process_weight)
        if self._config.malformed_penalty:
            malformed = sum(turn["malformed"] for turn in trajectory.turns)
            scored = with_penalty(scored, MALFORMED, min(1.0, self._config.malformed_penalty * malformed))
        if self._config.overlong and (trajectory.token_ids or not trajectory.turns):  # most endpoints return no ids to count
            scored = with_penalty(scored, OVERLONG, overlong_penalty(self._config.overlong, sum(trajectory.action_mask)))
        if self._config.flawed_penalty:
            scored = with_penalty(scored, FLAWED, self._config.flawed_penalty * flawed)
        return scored

    def _flawed(self, scored: Score, task: Task, trajectory: Trajectory, totals: list[float]) -> bool:
        """Whether the episode has a flaw, as the doctor counts them: of its steps, a step back, a verifier's low mark."""
        if not self._config.flawed_penalty:
            return False
        back = any(reward < -LEAST_STEP for reward in (scored.turn_rewards or [])[:-1])
        disagrees = any(total < HALF for total in totals)
        return back or disagrees or bool(flaws_of(trajectory, offered_tools(task.environment)))

    def _with_turn_rewards(self, scored: Score, task: Task, trajectory: Trajectory) -> Score:
        assert scored.total is not None
        try:
            rewards = turn_rewards(
                task, trajectory, lambda state: self._potential(task, state), scored.total, self._tool_format
            )
        except DataError as error:
            return replace(scored, detail=f"no turn rewards: {error}")
        except Exception as error:  # environments and verifiers are user code, as above
            return replace(scored, detail=f"no turn rewards: {type(error).__name__}: {error}")
        return replace(scored, turn_rewards=rewards)

    def _potential(self, task: Task, state: dict[str, Any]) -> float:
        """The potential of a state in [0, 1]: the verifiers' progress, weighted like their totals.

        It is scaled by the share of the objectives that are not costs. Costs are known only at the end, so the last turn
        gets their share.
        """
        return state_share(self._config.objectives) * self._mean(
            [state_progress(self._verifiers[spec], task, state) for spec, _ in self._terms(task)]
        )

    def _terms(self, task: Task) -> list[tuple[str, str]]:
        """The verifiers of a task, in the rubric's order, each with its name in the breakdown.

        The name is the kind, without arguments; of two with other arguments, the second is `kind#2`.
        """
        specs = [task.verifier if term.kind == TASK_VERIFIER else term.spec for term in self._config.verifiers]
        known: dict[str, list[str]] = {}
        terms = []
        for spec in specs:
            kind = parse_kind(spec).kind
            alike = known.setdefault(kind, [])
            if spec not in alike:
                alike.append(spec)
            place = alike.index(spec) + 1
            terms.append((spec, kind if place == 1 else f"{kind}#{place}"))
        return terms

    def _mean(self, values: list[float]) -> float:
        weights = [term.weight for term in self._config.verifiers]
        return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


def _joined(explanations: list[tuple[str, str]]) -> str:
    """The verifiers' explanations, each under its kind where there are several verifiers."""
    given = [(kind, text) for kind, text in explanations if text]
    return "\n".join(text if len(explanations) == 1 else f"{kind}: {text}" for kind, text in given)


def success_of(score: Score | Mapping[str, float]) -> float:
    """1 or 0 for a scored trajectory, NaN for any other, from a score or its breakdown."""
    breakdown = score.breakdown if isinstance(score, Score) else score
    return breakdown.get("success", math.nan)


def without_total(task: Task, trajectory: Trajectory, status: str, detail: str) -> Score:
    """The score of a trajectory that could not be scored."""
    return Score(
        trajectory.id,
        trajectory.task_id,
        trajectory.group,
        status,  # type: ignore[arg-type]
        None,
        {},
        detail,
        task.family,
    )
