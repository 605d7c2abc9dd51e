"""Rubrics: weighted verifiers that score trajectories."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tracewheel.chat.formats import AUTO, WELL_FORMED, make_format
from tracewheel.config import RubricConfig, RubricTerm
from tracewheel.core.errors import DataError
from tracewheel.core.kinds import parse_kind
from tracewheel.core.own_code import described
from tracewheel.core.time_limits import untimed
from tracewheel.core.types import INFRASTRUCTURE_FAILED, POLICY_FAULTS, Fault, Score, Task, Trajectory, canonical_json
from tracewheel.environments import Environment, Observation, Replier, open_environment, opening_messages, repeats_replies
from tracewheel.scoring.adjustments import (
    CAPPED,
    CERTAINTY,
    FLAWED,
    MALFORMED,
    OUTCOME,
    OVERLONG,
    SHAPING,
    Weighed,
    bounded,
    outcome_first,
    overlong_penalty,
    with_penalty,
    with_process_rewards,
)
from tracewheel.scoring.flaws import HALF, LEAST_STEP, flaws_of, offered_tools
from tracewheel.scoring.objectives import PREFIX, objective_values, state_share, weighted
from tracewheel.scoring.verifiers import (
    AnyVerifier,
    GroupVerifier,
    Verdict,
    checked,
    episode_of,
    make_verifier,
    state_progress,
    verdict_of,
)
from tracewheel.scoring.verifiers.base import ProgressVerifier

Message = dict[str, Any]


def replay_turns(task: Task, trajectory: Trajectory, tool_format: str = "hermes") -> list[dict[str, Any]]:
    """The environment's state at the start and after each of the trajectory's N turns: N + 1 snapshots.

    The calls of each turn are executed in a fresh environment, as in the rollout: malformed calls and turns that hit the
    token limit do nothing. A turn without a call is told to an environment that answers those, unless its answers differ
    from time to time.

    Raises:
        DataError: the numbers of assistant messages and turns differ, or the replay ends in another state than the
            trajectory, for instance because the environment is not deterministic.
    """
    with open_environment(task.environment) as environment:
        return _states(environment, task, trajectory, tool_format)


def _states(environment: Environment, task: Task, trajectory: Trajectory, tool_format: str) -> list[dict[str, Any]]:
    environment.reset(task)
    # The reset has already applied the calls of an opening conversation.
    before = len(opening_messages(environment, task))
    own = [i for i, message in enumerate(trajectory.messages) if message["role"] == "assistant" and i >= before]
    if len(own) != len(trajectory.turns):
        raise DataError(f"trajectory {trajectory.id}: {len(own)} assistant messages for {len(trajectory.turns)} turns")
    states = [environment.snapshot()]
    done = False
    for index, turn in zip(own, trajectory.turns, strict=True):
        truncated = trajectory.stop_reason == "max_tokens" and index == len(trajectory.messages) - 1
        if not done and not truncated:
            observations = _repeated(environment, trajectory.messages[index], turn["calls"], tool_format)
            done = any(observation.done or observation.fault for observation in observations)
        states.append(environment.snapshot())
    if canonical_json(states[-1]) != canonical_json(trajectory.final_state):
        raise DataError(f"trajectory {trajectory.id}: its replay ends in another state")
    return states


def shaped_rewards(potentials: list[float], total: float) -> list[float]:
    """The rewards of N turns, from the N + 1 potentials at the start and after each turn; they sum to `total`.

    The last turn gets the rest of the total, whatever the potential of the final state. Without turns there are no rewards.
    """
    if len(potentials) < 2:
        return []
    steps = [after - before for before, after in pairwise(potentials[:-1])]
    return [*steps, total - (potentials[-2] - potentials[0])]


def turn_rewards(
    task: Task,
    trajectory: Trajectory,
    potential: Callable[[dict[str, Any]], float],
    total: float,
    tool_format: str = "hermes",
) -> list[float]:
    """The reward of each turn of a trajectory, under a potential of its states.

    Raises:
        DataError: it cannot be replayed (see `replay_turns`).
    """
    return shaped_rewards([potential(state) for state in replay_turns(task, trajectory, tool_format)], total)


def _repeated(environment: Environment, message: Message, calls: int, tool_format: str) -> Iterator[Observation]:
    """Carry out a turn again, call by call; without any call, the environment answers its words."""
    if calls:
        yield from (environment.step(name, arguments) for name, arguments in _calls(message, tool_format))
    elif isinstance(environment, Replier) and repeats_replies(environment):
        yield environment.reply(message.get("content") or "")


def _calls(message: Message, tool_format: str) -> list[tuple[str, dict[str, Any]]]:
    """The well-formed calls of an assistant message.

    A message with a malformed call was stored as raw text, with the well-formed ones beside it under `WELL_FORMED`;
    before that key existed it had the text alone.
    """
    if message.get("tool_calls"):
        functions = [call["function"] for call in message["tool_calls"]]
        return [(function["name"], json.loads(function["arguments"])) for function in functions]
    if WELL_FORMED in message:
        return [(name, arguments) for name, arguments in message[WELL_FORMED]]
    parsed = make_format("hermes" if tool_format == AUTO else tool_format).parse(message.get("content") or "").calls
    return [(call.name, call.arguments) for call in parsed if not call.malformed]


TASK_VERIFIER = "task"


class Rubric:
    """Scores trajectories of the given tasks.

    The breakdown of a score holds each verifier's total under its kind and its parts under `kind.part`; `success`, which is
    1 when the first verifier's total is 1 (with `outcome_first`: when that of every outcome term is); each objective's value
    under `objective.<name>`; the `process_reward` where the environment returned rewards; and each penalty that the rubric has:
    `malformed_penalty`, `overlong_penalty`, `flawed_penalty`. With `mode: outcome_first` there are also `outcome` and
    `shaping`, the two means, and `held_back`. What a capped term counted is `capped.<kind>`. Where no verifier that decides is
    certain, `certainty` is that of the surest.

    The reward is the weighted mean of the objectives, or of the verifiers' totals where there are no objectives. The total is
    the reward plus the process reward minus the penalties, for failed episodes too; that for malformed calls is 1 at most.

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
        named = {term.spec for term in config.verifiers}
        of_tasks = {task.verifier for task in tasks} if named & {TASK_VERIFIER, ProgressVerifier.kind} else set()
        made = (named | of_tasks) - {TASK_VERIFIER, ProgressVerifier.kind}
        self._verifiers: dict[str, AnyVerifier] = {kind: make_verifier(kind) for kind in sorted(made)}
        self._verifiers[ProgressVerifier.kind] = ProgressVerifier(dict(self._verifiers))
        self._relative: dict[tuple[str, str], Verdict | Exception] = {}

    @property
    def concurrency(self) -> int:
        """How many trajectories are scored at once: one, unless a verifier waits for others, as a judge does."""
        return max((getattr(verifier, "concurrency", 1) for verifier in self._verifiers.values()), default=1)

    def score(self, task: Task, trajectory: Trajectory) -> Score:
        """The score of one trajectory.

        An infrastructure failure has status `infrastructure_failed`, and an episode that failed through anyone's fault but the
        model's or its harness's is `unscored`. If a verifier raises or returns a number outside [0, 1], an objective's part is
        missing, or no term is for this task, the status is `unscored` and `detail` says why. Neither has a total, because an
        unscored episode is not a failure of the policy. If turn rewards cannot be computed, the score keeps its total and
        `detail` says why.
        """
        if trajectory.stop_reason == "infrastructure_failed":
            return without_total(task, trajectory, "infrastructure_failed", trajectory.detail)
        if trajectory.fault not in POLICY_FAULTS:
            detail = f"the fault of the {trajectory.fault}: {trajectory.detail}".removesuffix(": ")
            return without_total(task, trajectory, "unscored", detail)
        breakdown: dict[str, float] = {}
        totals, weighed, certainties, answers, explanations = [], [], [], [], []
        terms = self._terms(task)
        if not any(term.role == "outcome" for term, _, _ in terms):
            return without_total(task, trajectory, "unscored", f"rubric.verifiers: no outcome term is for {_named(task)}")
        for term, spec, kind in terms:
            try:
                found = self._verdict(spec, task, trajectory)
            except Exception as error:  # a verifier is user code: whatever it raises, the episode is unscored
                detail = described(error) or f"verifier {kind}: {type(error).__name__}: {error}"
                return without_total(task, trajectory, "unscored", detail, getattr(error, "fault", ""))
            total, parts = found.total, {f"{kind}.{name}": value for name, value in found.parts.items()}
            if not 0.0 <= total <= 1.0 or not all(map(math.isfinite, parts.values())):
                return without_total(
                    task, trajectory, "unscored", f"verifier {kind}: gave {total} with {parts}, outside 0 to 1"
                )
            totals.append(total)
            capped = total if term.cap is None else min(total, term.cap)
            weighed.append(self._weighed(term, capped, found.weight))
            if self._config.mode == "weighted" or term.role == "outcome":
                certainties.append(found.weight)
            breakdown |= {kind: total, **parts}
            if term.cap is not None:
                breakdown[f"{CAPPED}{kind}"] = capped
            answers.append(found.answer)
            explanations.append((kind, found.explanation))
        breakdown["success"] = float(totals[0] >= 1.0)
        if max(certainties) < 1.0:
            breakdown[CERTAINTY] = max(certainties)
        reward = _mean(weighed)
        first = outcome_first(weighed) if self._config.mode == "outcome_first" else None
        if first:
            breakdown |= {"success": float(first.success), OUTCOME: first.outcome, SHAPING: first.shaping}
            reward = first.total
            totals = [total for total, term in zip(totals, weighed, strict=True) if not term.shaping]
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
        scored = with_process_rewards(scored, trajectory)
        if self._config.malformed_penalty:
            malformed = sum(turn["malformed"] for turn in trajectory.turns)
            scored = with_penalty(scored, MALFORMED, min(1.0, self._config.malformed_penalty * malformed))
        if self._config.overlong and (trajectory.token_ids or not trajectory.turns):  # most endpoints return no ids to count
            scored = with_penalty(
                scored,
                OVERLONG,
                overlong_penalty(self._config.overlong.max_tokens, self._config.overlong.cache, sum(trajectory.action_mask)),
            )
        if self._config.flawed_penalty:
            scored = with_penalty(scored, FLAWED, self._config.flawed_penalty * flawed)
        return bounded(scored, first) if first else scored

    def compare_groups(self, episodes: Sequence[tuple[Task, Trajectory]]) -> None:
        """Have the verifiers that compare episodes do so, group by group, before the trajectories are scored.

        Episodes that failed through anyone's fault but the policy's are not compared. A trajectory that is scored without this
        is a group of its own.
        """
        groups: dict[tuple[str, str], tuple[Task, list[Trajectory]]] = {}
        for task, trajectory in episodes:
            if trajectory.stop_reason != INFRASTRUCTURE_FAILED and trajectory.fault in POLICY_FAULTS:
                groups.setdefault((trajectory.group, task.id), (task, []))[1].append(trajectory)
        wanted = [
            (spec, task, group)
            for task, group in groups.values()
            for _, spec, _ in self._terms(task)
            if isinstance(self._verifiers[spec], GroupVerifier)
        ]
        with ThreadPoolExecutor(max(1, min(self.concurrency, len(wanted)))) as pool:
            for found in pool.map(lambda asked: self._compared(*asked), wanted):
                self._relative |= found

    def _compared(self, spec: str, task: Task, group: list[Trajectory]) -> dict[tuple[str, str], Verdict | Exception]:
        verifier = self._verifiers[spec]
        assert isinstance(verifier, GroupVerifier)
        try:
            verdicts: Sequence[Verdict | Exception] = verifier.verify_group(task, [episode_of(item) for item in group])
            if len(verdicts) != len(group):
                raise TypeError(f"verify_group returned {len(verdicts)} verdicts for {len(group)} episodes")
        except Exception as error:  # user code, as in `score`
            verdicts = [error] * len(group)
        return {(spec, item.id): verdict for item, verdict in zip(group, verdicts, strict=True)}

    def _verdict(self, spec: str, task: Task, trajectory: Trajectory) -> Verdict:
        known = self._relative.get((spec, trajectory.id))
        if known is not None:
            return checked(known)
        return verdict_of(self._verifiers[spec], task, trajectory.final_state, functools.partial(episode_of, trajectory))

    def _weighed(self, term: RubricTerm, value: float, certainty: float) -> Weighed:
        """A term with its share, less as its verifier is less certain.

        With `outcome_first` shares stay, so that every failure is below every success: a doubtful shaping term adds less.
        """
        if self._config.mode == "weighted":
            return Weighed(value, term.weight * certainty, False)
        shaping = term.role == "shaping"
        return Weighed(value * certainty if shaping else value, term.weight, shaping)

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
            with untimed():  # its calls had their time limits as it was played, and the total stands whatever they take
                rewards = turn_rewards(
                    task, trajectory, lambda state: self._potential(task, state), scored.total, self._tool_format
                )
        except DataError as error:
            return replace(scored, detail=f"no turn rewards: {error}")
        except Exception as error:  # environments and verifiers are user code, as above
            return replace(scored, detail=f"no turn rewards: {type(error).__name__}: {error}")
        return replace(scored, turn_rewards=rewards)

    def _potential(self, task: Task, state: dict[str, Any]) -> float:
        """The potential of a state in [0, 1]: the outcome verifiers' progress, weighted like their totals.

        It is scaled by the share of the objectives that are not costs. Costs are known only at the end, so the last turn
        gets their share, as it gets what shaping terms give.
        """
        found = [
            Weighed(state_progress(self._verifiers[spec], task, state), term.weight, False)
            for term, spec, _ in self._terms(task)
            if term.role == "outcome"
        ]
        return state_share(self._config.objectives) * _mean(found)

    def _terms(self, task: Task) -> list[tuple[RubricTerm, str, str]]:
        """The terms that are for a task, in the rubric's order, each with its verifier and its name in the breakdown.

        The name is the kind, without arguments; of two with other arguments, the second is `kind#2`.
        """
        environment = parse_kind(task.environment).kind
        known: dict[str, list[str]] = {}
        terms = []
        for term in self._config.verifiers:
            # `recorded` is any `recorded:PATH`
            if term.only and not {environment, environment.partition(":")[0], task.family} & set(term.only):
                continue
            spec = task.verifier if term.kind == TASK_VERIFIER else term.spec
            kind = parse_kind(spec).kind
            alike = known.setdefault(kind, [])
            if spec not in alike:
                alike.append(spec)
            place = alike.index(spec) + 1
            terms.append((term, spec, kind if place == 1 else f"{kind}#{place}"))
        return terms


def _mean(terms: list[Weighed]) -> float:
    weights = sum(term.weight for term in terms)
    if not weights:  # nobody is certain of anything
        return sum(term.value for term in terms) / len(terms)
    return sum(term.weight * term.value for term in terms) / weights


def _named(task: Task) -> str:
    return f"environment '{parse_kind(task.environment).kind}', family '{task.family}'"


def _joined(explanations: list[tuple[str, str]]) -> str:
    """The verifiers' explanations, each under its kind where there are several verifiers."""
    given = [(kind, text) for kind, text in explanations if text]
    return "\n".join(text if len(explanations) == 1 else f"{kind}: {text}" for kind, text in given)


def success_of(score: Score | Mapping[str, float]) -> float:
    """1 or 0 for a scored trajectory, NaN for any other, from a score or its breakdown."""
    breakdown = score.breakdown if isinstance(score, Score) else score
    return breakdown.get("success", math.nan)


def without_total(task: Task, trajectory: Trajectory, status: str, detail: str, fault: Fault = "") -> Score:
    """The score of a trajectory that could not be scored; `fault` is whose, where a verifier says so."""
    return Score(
        trajectory.id,
        trajectory.task_id,
        trajectory.group,
        status,  # type: ignore[arg-type]
        None,
        {},
        detail,
        task.family,
        fault=fault,
    )
