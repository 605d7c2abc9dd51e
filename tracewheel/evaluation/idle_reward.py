"""What no work earns under the rubric that is trained on: no call, calls without effect, the same answer to everything.

Partial credit that is there before the first call teaches a policy to leave things as they are. A verifier's own total for
doing nothing is 0 (curation's probes); objectives, shaping terms and process rewards are seen here alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tracewheel.config import AuditConfig, RubricConfig
from tracewheel.core.errors import ConfigError, DoubtfulData
from tracewheel.core.kinds import parse_kind
from tracewheel.core.own_code import reason
from tracewheel.core.types import Score, Task, canonical_json
from tracewheel.environments import TEXT_TURN, Environment, Replier, Solver, open_environment, repeats_replies
from tracewheel.evaluation.constant_policy import (
    MOST_OF_A_SORT,
    SECONDS,
    Calls,
    answers_of,
    asks_or_waits,
    constant_episode,
    described,
    within,
)
from tracewheel.scoring.objectives import UNREADABLE_OBJECTIVE
from tracewheel.scoring.rubric import Rubric, success_of

MOST_TASKS, IDLE_CALLS = 24, 3
SAID: Calls = ((TEXT_TURN, {"text": "I am done."}),)
PLACEHOLDERS = {"string": "x", "integer": 1, "number": 1, "boolean": False, "array": [], "object": {}, "null": None}

ADVICE = (
    "no part that is rewarded should be there before the first call: reward progress from the start (verifier `progress`), "
    "give such a part weight 0, or set rubric.mode to outcome_first"
)


def idle_reward(rubric: RubricConfig, tasks: Sequence[Task], most: float, seconds: float = SECONDS) -> dict[str, Any]:
    """What episodes without any work earn, on at most 24 tasks of each environment.

    Args:
        rubric: The one that is trained on.
        tasks: Tasks of training.
        most: The share of the full reward that no work may earn.
        seconds: How long the episodes of one environment may take.

    Returns:
        `environments`: of each `environment`, the mean reward of each behaviour in `rewards`, the `full` reward (a known
        solution's, else 1), and `share`: of it, what the best behaviour earns where it solves nothing; or why it is
        `not_measured`. `share`, the largest; `says`, a sentence; `reasons`, what is above `most`, and `advice` against it.

    Raises:
        ConfigError: an objective names a part that no verifier gives.
    """
    rows = []
    for name in sorted({task.environment for task in tasks}):
        here = sorted((task for task in tasks if task.environment == name), key=lambda task: task.fingerprint)[:MOST_TASKS]
        found = within(seconds, partial(_measured, rubric, here))
        if unreadable := found.pop("unreadable", ""):
            raise ConfigError(f"rubric.objectives: {unreadable}")
        rows.append({"environment": parse_kind(name).kind, **found})
    shares = [row["share"] for row in rows if "share" in row]
    return {
        "environments": rows,
        "share": max(shares, default=None),
        "says": "; ".join(map(_sentence, rows)),
        "reasons": [
            f"{row['environment']}: {row['does']} earns {row['share']:.0%} of the full reward, more than {most:.0%} "
            "(audit.max_idle_reward)"
            for row in rows
            if row.get("share", 0.0) > most
        ],
        "advice": ADVICE,
    }


def check_idle(rubric: RubricConfig, config: AuditConfig, tasks: Sequence[Task]) -> str:
    """Check, before a rollout, what no work earns; returns it in a sentence, "" where it is nothing.

    Raises:
        ConfigError: an objective names a part that no verifier gives.
        DoubtfulData: it is more than `max_idle_reward`.
    """
    found = idle_reward(rubric, tasks, config.max_idle_reward)
    if found["reasons"]:
        raise DoubtfulData(f"rubric: {'; '.join(found['reasons'])}; {found['advice']}")
    return str(found["says"]) if found["share"] else ""


def _sentence(row: Mapping[str, Any]) -> str:
    if "not_measured" in row:
        return f"{row['environment']}: not measured: {row['not_measured']}"
    rewards = ", ".join(f"{name} {value:.2f}" for name, value in row["rewards"].items())
    return f"{row['environment']}: {rewards}, of {row['full']:.2f}"


def _measured(rubric: RubricConfig, tasks: Sequence[Task]) -> dict[str, Any]:
    if why := asks_or_waits(rubric, tasks):
        return {"not_measured": why}
    judges = Rubric(rubric.model_copy(update={"turn_rewards": False}), tasks)
    with open_environment(tasks[0].environment) as environment:
        if isinstance(environment, Replier) and not repeats_replies(environment):
            return {"not_measured": "its user is a model"}
        score = partial(_score, judges, environment)
        scores = {"no call": [score(task, ()) for task in tasks], "only words": [score(task, SAID) for task in tasks]}
        if all(one.detail.startswith(UNREADABLE_OBJECTIVE) for one in scores["no call"]):
            return {"unreadable": scores["no call"][0].detail}
        idle = {task.id: calls for task in tasks if (calls := _without_effect(environment, task))}
        scores["calls without effect"] = [score(task, idle[task.id]) for task in tasks if task.id in idle]
        frequent = Counter(text for task in tasks for text in answers_of(task)).most_common(MOST_OF_A_SORT)
        said: list[Calls] = [((TEXT_TURN, {"text": text}),) for text, _ in frequent]
        answers = {described(calls): [score(task, calls) for task in tasks] for calls in said}
        known = [(task, _solution(environment, task)) for task in tasks]
        full = [score(task, solution).total for task, solution in known if solution is not None]
    rewards = {name: _mean([one.total for one in found]) for name, found in scores.items()}
    if answers:
        best = max(answers, key=lambda name: _mean([one.total for one in answers[name]]) or 0.0)
        rewards[best], scores[best] = _mean([one.total for one in answers[best]]), answers[best]
    rewards = {name: value for name, value in rewards.items() if value is not None}
    if not rewards:
        return {"not_measured": "no such episode could be scored"}
    # A success by chance is no partial credit: the report's floor has it.
    unsolved = {name: _mean([one.total for one in found if not success_of(one)]) or 0.0 for name, found in scores.items()}
    most, whole = max(unsolved, key=lambda name: unsolved[name]), _mean(full) or 1.0
    return {"rewards": rewards, "full": whole, "does": most, "share": unsolved[most] / whole, "n": len(tasks)}


def _score(rubric: Rubric, environment: Environment, task: Task, calls: Calls) -> Score:
    return rubric.score(task, constant_episode(environment, task, calls))


def _mean(totals: Sequence[float | None]) -> float | None:
    known = [total for total in totals if total is not None]
    return sum(known) / len(known) if known else None


def _solution(environment: Environment, task: Task) -> Calls | None:
    found = environment.solution(task) if isinstance(environment, Solver) else None
    return None if found is None else tuple(found)


def _without_effect(environment: Environment, task: Task) -> Calls:
    """Three calls that leave the state as it is, those that succeed first; none where every call has an effect."""
    idle: list[tuple[bool, int, tuple[str, dict[str, Any]]]] = []
    for place, call in enumerate(tried_calls(environment, task)):
        environment.reset(task)
        before = canonical_json(environment.snapshot())
        try:
            observation = environment.step(*call)
            same = canonical_json(environment.snapshot()) == before
        except Exception as error:
            reason(error)  # raised again where no user's class has raised it, at a call that nobody made before
            continue
        if same and not observation.done and not observation.fault:
            idle.append((observation.error, place, call))
    calls = [call for *_, call in sorted(idle, key=lambda one: one[:2])]
    return tuple((calls * IDLE_CALLS)[:IDLE_CALLS])


def tried_calls(environment: Environment, task: Task) -> list[tuple[str, dict[str, Any]]]:
    """Calls of each tool: as a known solution makes them, and with placeholders."""
    environment.reset(task)
    known = [call for call in _solution(environment, task) or () if call[0] != TEXT_TURN]
    for tool in environment.tools():
        parameters = tool["function"].get("parameters") or {}
        properties, required = parameters.get("properties") or {}, parameters.get("required") or ()
        known.append((tool["function"]["name"], {name: _placeholder(properties.get(name)) for name in required}))
    return known


def _placeholder(schema: Any) -> Any:
    schema = schema if isinstance(schema, dict) else {}
    kind = schema.get("type", "string")
    return schema["enum"][0] if schema.get("enum") else PLACEHOLDERS.get(kind if isinstance(kind, str) else kind[0], "x")
