"""Probes that drop invalid tasks: solved by doing nothing, not solvable, not reproducible, or not judgeable.

In tau-bench, doing nothing solves 19 of 50 airline tasks; an agent trained on such tasks learns to do nothing.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewheel.core.files import read_table
from tracewheel.core.own_code import named
from tracewheel.core.types import Task, canonical_json
from tracewheel.curation.curated_folder import EPISODES_FILE
from tracewheel.curation.openings import calls_of
from tracewheel.curation.replay import LoggedEpisode, judge
from tracewheel.curation.task_records import Call
from tracewheel.environments import (
    Environment,
    Solver,
    close_environment,
    make_environment,
    opening_messages,
    repeat,
    share_resources,
)
from tracewheel.environments.base import turn_messages
from tracewheel.environments.recorded.environment import PREFIX as RECORDED

MakeEnvironment = Callable[[], Environment]
Probed = tuple[Task, Sequence[Call] | None]
TOLERANCE = 1e-9
TASKS_AT_ONCE = 200

NO_OP, GOLD, FLAKY, BROKEN = "solved by doing nothing", "known solution fails", "two runs disagree", "cannot be judged"
UNSOLVED = "no success is logged"


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of probing a task.

    Attributes:
        verdict: "" for a valid task, or one of `NO_OP`, `GOLD`, `FLAKY`, `BROKEN` and `UNSOLVED`.
        reason: What was observed, or "".
        solution_tried: Whether a known solution was played.
    """

    verdict: str = ""
    reason: str = ""
    solution_tried: bool = False

    @property
    def valid(self) -> bool:
        return not self.verdict


@dataclass
class _Run:
    """One episode: states and replies, and the score."""

    total: float | None
    breakdown: dict[str, float]
    unscored: str
    seen: list[str] = field(default_factory=list)


def probe_task(task: Task, make: MakeEnvironment | None = None, solution: Sequence[Call] | None = None) -> Probe:
    """Play a task's known solution and nothing at all, twice each, in fresh environments.

    Args:
        task: The task.
        make: Makes the environment; by default the task's own.
        solution: Calls that are known to solve it, used where the environment itself knows no solution.

    Returns:
        The first problem, in this order: two runs of doing nothing disagree, cannot be judged, doing nothing scores above 0,
        two runs of the solution disagree, the solution scores below 1.
    """
    if task.environment.startswith(RECORDED) and not task.goal["references"]:
        return Probe(UNSOLVED, "a recorded task is scored by its successes, and the log has none")
    make = make or (lambda: make_environment(task.environment))
    try:
        first, second = _play(task, make(), ()), _play(task, make(), ())
        # Compared first: a verifier that sometimes fails is flaky, not broken.
        if differing := _difference(first, second):
            return Probe(FLAKY, f"doing nothing twice: {differing}")
        if first.total is None:
            return Probe(BROKEN, first.unscored)
        if first.total > 0:
            return Probe(NO_OP, f"doing nothing scores {first.total:g}")
        calls = _known_solution(task, make, solution)
        if calls is None:
            return Probe()
        first, second = _play(task, make(), calls), _play(task, make(), calls)
    except Exception as error:  # a user's environment may raise anything; one that fails here would fail every rollout
        return Probe(BROKEN, f"the environment fails: {named(error)}")
    if differing := _difference(first, second):
        return Probe(FLAKY, f"the known solution twice: {differing}", solution_tried=True)
    if first.total is None:
        return Probe(GOLD, f"the known solution: {first.unscored}", solution_tried=True)
    if first.total < 1.0 - TOLERANCE:
        missed = ", ".join(sorted(name for name, value in first.breakdown.items() if value < 1.0))
        return Probe(GOLD, f"it scores {first.total:g}{f', short of full marks in {missed}' if missed else ''}", True)
    return Probe(solution_tried=True)


def probe_report(probes: Mapping[str, Probe]) -> dict[str, Any]:
    """Counts of tasks `probed`, `with_solution`, `fit`, and `dropped` by verdict."""
    return {
        "probed": len(probes),
        "with_solution": sum(probe.solution_tried for probe in probes.values()),
        "fit": sum(probe.valid for probe in probes.values()),
        "dropped": dict(sorted(Counter(probe.verdict for probe in probes.values() if not probe.valid).items())),
    }


def in_parts(items: Iterable[Probed]) -> Iterator[list[Probed]]:
    """Tasks in parts, as one process probes them."""
    items = iter(items)
    while part := list(itertools.islice(items, TASKS_AT_ONCE)):
        yield part


def probe_part(part: list[Probed]) -> list[tuple[str, Probe]]:
    """The probes of some tasks, with their ids."""
    return [(task.id, probe_task(task, None, solution)) for task, solution in part]


def shortest(solutions: Iterable[tuple[str, str, list[Call]]]) -> dict[str, list[Call]]:
    """The shortest calls by task id, from (trace id, task id, calls); ties go to the first trace id."""
    found: dict[str, list[Call]] = {}
    for _, task_id, calls in sorted(solutions, key=lambda solution: solution[0]):
        if task_id not in found or len(calls) < len(found[task_id]):
            found[task_id] = calls
    return found


def logged_solutions(curated: Path, tasks: Sequence[Task]) -> dict[str, list[Call]]:
    """The shortest verified episode of each task that has one, as calls by task id.

    Raises:
        DataError: the folder's episodes cannot be read.
    """
    frame = read_table(curated / EPISODES_FILE)
    known = {task.id: task for task in tasks}
    worlds = {spec: make_environment(spec) for spec in {task.environment for task in tasks}}
    won = frame[frame["task_id"].isin(known) & (frame["success"] >= 1.0)]
    made = []
    for trace, task_id, messages in zip(won["trace_id"], won["task_id"], won["messages"], strict=True):
        task = known[task_id]
        made.append((str(trace), task.id, calls_of(json.loads(messages), task, worlds[task.environment])))
    return shortest(made)


def _known_solution(task: Task, make: MakeEnvironment, given: Sequence[Call] | None) -> Sequence[Call] | None:
    environment = make()
    if not isinstance(environment, Solver):
        return given
    with _sharing(environment, task):  # to solve may be to play
        own = environment.solution(task)
    return given if own is None else own


def _play(task: Task, environment: Environment, calls: Sequence[Call]) -> _Run:
    with _sharing(environment, task):
        return _played(task, environment, calls)


@contextmanager
def _sharing(environment: Environment, task: Task) -> Iterator[None]:
    """The environment with what the episodes of its kind share; it is closed at the end."""
    try:
        share_resources(environment, task.environment)
        yield
    finally:
        close_environment(environment)


def _played(task: Task, environment: Environment, calls: Sequence[Call]) -> _Run:
    environment.reset(task)
    environment.tools()  # a policy would be shown them now
    seen = [canonical_json(environment.snapshot())]
    messages = opening_messages(environment, task)
    opening, ended = len(messages), False
    for number, (name, arguments) in enumerate(calls):
        observation = repeat(environment, name, dict(arguments))
        seen.append(observation.text)
        ended = observation.done or bool(observation.fault)
        messages += turn_messages(number, name, arguments, None if ended else observation.text)
        if ended:
            break
    seen.append(canonical_json(environment.snapshot()))
    return _Run(*judge(task, environment, LoggedEpisode(messages, opening, ended)), seen)


def _difference(one: _Run, other: _Run) -> str:
    """How two runs differ, or ""."""
    if (one.total is None) != (other.total is None) or (
        one.total is not None and other.total is not None and abs(one.total - other.total) > TOLERANCE
    ):
        return f"the score is {_named(one.total)} and {_named(other.total)}"
    if one.breakdown != other.breakdown:
        parts = sorted(name for name in one.breakdown if one.breakdown.get(name) != other.breakdown.get(name))
        return f"the score has different parts ({', '.join(parts)})"
    place = next((index for index, pair in enumerate(zip(one.seen, other.seen, strict=False)) if pair[0] != pair[1]), None)
    if place is None:
        return "" if len(one.seen) == len(other.seen) else "one ended before the other"
    if place == 0:
        return "they start from different states"
    return "they end in different states" if place == len(one.seen) - 1 else f"call {place} is answered differently"


def _named(total: float | None) -> str:
    return "none" if total is None else f"{total:g}"
