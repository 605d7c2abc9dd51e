"""Probes of a task before it is kept: one that gives something for nothing, cannot be solved or is unsteady teaches nothing.

On tau-bench 19 of 50 airline tasks are solved by doing nothing at all; an agent trained on such tasks learns to do nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracewheel.core.types import Task, canonical_json
from tracewheel.curation.replay import after_opening, judge
from tracewheel.environments import Environment, Solver, make_environment, opening_of
from tracewheel.environments.recorded.calls import calls_in

if TYPE_CHECKING:
    import pandas

    from tracewheel.curation.shelf import Solutions

Call = tuple[str, dict[str, Any]]
MakeEnvironment = Callable[[], Environment]
TOLERANCE = 1e-9

NO_OP, GOLD, FLAKY, BROKEN = "solved by doing nothing", "known solution fails", "two runs disagree", "cannot be judged"


@dataclass(frozen=True, slots=True)
class Probe:
    """What probing a task came to.

    Attributes:
        verdict: "" for a task that is fit, or one of `NO_OP`, `GOLD`, `FLAKY` and `BROKEN`.
        reason: A sentence on it, or "".
        solution_tried: Whether a known solution was played.
    """

    verdict: str = ""
    reason: str = ""
    solution_tried: bool = False

    @property
    def fit(self) -> bool:
        return not self.verdict


@dataclass
class _Run:
    """One episode: what was seen and how it was judged."""

    total: float | None
    breakdown: dict[str, float]
    unscored: str
    seen: list[str] = field(default_factory=list)


def probe_task(
    task: Task, make: MakeEnvironment | None = None, solution: Sequence[Call] | None = None, *, word_for_word: bool = True
) -> Probe:
    """Play a task's known solution and nothing at all, twice each, in fresh environments.

    Args:
        task: The task.
        make: Makes the environment; by default the task's own.
        solution: Calls that are known to solve it, for where the environment is no `Solver` and knows none itself.
        word_for_word: Whether two runs must also start, reply and end alike. Without it only their scores are compared,
            for environments that put a time or a random name into what they say.

    Returns:
        The first that is wrong, in the order: cannot be judged, two runs of doing nothing disagree, doing nothing
        scores above 0, two runs of the solution disagree, the solution scores below 1.
    """
    make = make or (lambda: make_environment(task.environment))
    try:
        first, second = _play(task, make(), ()), _play(task, make(), ())
        # Told apart first: a verifier that fails now and then is flaky, not broken.
        if differing := _difference(first, second, word_for_word):
            return Probe(FLAKY, f"doing nothing twice: {differing}")
        if first.total is None:
            return Probe(BROKEN, first.unscored)
        if first.total > 0:
            return Probe(NO_OP, f"doing nothing scores {first.total:g}")
        calls = _known_solution(task, make(), solution)
        if calls is None:
            return Probe()
        first, second = _play(task, make(), calls), _play(task, make(), calls)
    except Exception as error:  # an environment may be anyone's code; one that fails here would fail every rollout
        return Probe(BROKEN, f"the environment fails: {type(error).__name__}: {error}")
    if differing := _difference(first, second, word_for_word):
        return Probe(FLAKY, f"the known solution twice: {differing}", solution_tried=True)
    if first.total is None:
        return Probe(GOLD, f"the known solution: {first.unscored}", solution_tried=True)
    if first.total < 1.0 - TOLERANCE:
        missed = ", ".join(sorted(name for name, value in first.breakdown.items() if value < 1.0))
        return Probe(GOLD, f"it scores {first.total:g}{f', short of full marks in {missed}' if missed else ''}", True)
    return Probe(solution_tried=True)


def probe_tasks(
    tasks: Iterable[Task],
    solutions: Solutions | Mapping[str, Sequence[Call]] | None = None,
    make: MakeEnvironment | None = None,
    *,
    word_for_word: bool = True,
) -> tuple[dict[str, Probe], dict[str, Any]]:
    """Probe tasks.

    Args:
        solutions: Known solutions by task id, as `verified_solutions` finds them.
        make: Makes the environment; by default each task's own.
        word_for_word: As in `probe_task`.

    Returns:
        The probes by task id, and a report: how many were `probed`, how many with a `solution`, how many are `fit`, and
        how many were `dropped` for each verdict.
    """
    known = {} if solutions is None else solutions
    probes = {task.id: probe_task(task, make, known.get(task.id), word_for_word=word_for_word) for task in tasks}
    report = {
        "probed": len(probes),
        "with_solution": sum(probe.solution_tried for probe in probes.values()),
        "fit": sum(probe.fit for probe in probes.values()),
        "dropped": dict(sorted(Counter(probe.verdict for probe in probes.values() if not probe.fit).items())),
    }
    return probes, report


def verified_solutions(replayed: pandas.DataFrame, tasks: Mapping[str, Task]) -> dict[str, list[Call]]:
    """The calls of each task's shortest trace that replay proved to be a success.

    Args:
        replayed: `id`, `task_id`, `success` and `messages` (JSON text), as `replay_traces` gives them.
        tasks: The tasks by id.
    """
    solutions: dict[str, list[Call]] = {}
    won = replayed[replayed["success"] >= 1.0].sort_values("id")
    for task_id, text in zip(won["task_id"], won["messages"], strict=True):
        made = calls_in(after_opening(json.loads(text), _opening_length(tasks[task_id])))
        calls = [(call.name, call.arguments) for call in made if isinstance(call.arguments, dict)]
        if task_id not in solutions or len(calls) < len(solutions[task_id]):
            solutions[task_id] = calls
    return solutions


def _opening_length(task: Task) -> int:
    environment = make_environment(task.environment)
    return len(opening_of(environment, task))


def _known_solution(task: Task, environment: Environment, given: Sequence[Call] | None) -> Sequence[Call] | None:
    own = environment.solution(task) if isinstance(environment, Solver) else None
    return given if own is None else own


def _play(task: Task, environment: Environment, calls: Sequence[Call]) -> _Run:
    environment.reset(task)
    seen = [canonical_json(environment.snapshot())]
    for name, arguments in calls:
        observation = environment.step(name, dict(arguments))
        seen.append(observation.text)
        if observation.done:
            break
    seen.append(canonical_json(environment.snapshot()))
    return _Run(*judge(task, environment), seen)


def _difference(one: _Run, other: _Run, word_for_word: bool) -> str:
    """What is not the same in two runs, "" when all is."""
    if (one.total is None) != (other.total is None) or (
        one.total is not None and other.total is not None and abs(one.total - other.total) > TOLERANCE
    ):
        return f"the score is {_named(one.total)} and {_named(other.total)}"
    if one.breakdown != other.breakdown:
        parts = sorted(name for name in one.breakdown if one.breakdown.get(name) != other.breakdown.get(name))
        return f"the score is made up of other parts ({', '.join(parts)})"
    if not word_for_word:
        return ""
    place = next((index for index, pair in enumerate(zip(one.seen, other.seen, strict=False)) if pair[0] != pair[1]), None)
    if place is None:
        return "" if len(one.seen) == len(other.seen) else "one ended before the other"
    if place == 0:
        return "they start from different states"
    return "they end in different states" if place == len(one.seen) - 1 else f"call {place} is answered differently"


def _named(total: float | None) -> str:
    return "none" if total is None else f"{total:g}"
