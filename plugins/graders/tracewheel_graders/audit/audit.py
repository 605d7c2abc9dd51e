"""The audit stage: tasks in, what each of their verifiers gets wrong out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tracewheel import (
    AuditSections,
    DataError,
    Solver,
    Task,
    TaskMaker,
    give,
    idle_reward,
    make_environment,
    open_environment,
    parse_kind,
    write_json,
)
from tracewheel_graders.audit.attempts import Attempts, attempts_of
from tracewheel_graders.audit.figures import CHANGES, LIMITS, SEED, figures_of
from tracewheel_graders.audit.judging import LEAST_REPEATED, REPEATED, Judge, Judged, repeats_of
from tracewheel_graders.audit.play import Call
from tracewheel_graders.audit.probes import Probe, probes_of
from tracewheel_graders.audit.sway import JUDGES, sway_of

AUDIT_FILE = "audit.json"
# Whose verifier or judge it is: of the rubric that is trained on, or of `evaluation.rubric`.
TRAINING, HELD_BACK = "training", "held_back"
# Solutions of other tasks from which calls and values are taken.
OTHERS = 6


def audit(
    config: AuditSections,
    tasks: Sequence[Task],
    out: Path,
    solutions: Mapping[str, Sequence[Call]] | None = None,
    verifier: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Audit the verifiers that decide whether a task is solved, in training and at the gate, and every judge of both rubrics.

    Args:
        config: The profile's sections.
        tasks: The tasks; `tasks_to_audit` chooses some.
        out: Folder for `audit.json`.
        solutions: Calls that solve tasks, for environments that know none themselves.
        verifier: Another verifier to audit in place of those of the rubric and the tasks.
        say: Shows a line.

    Returns:
        `verdict`, `tasks`, `without_solution` (tasks of which no solution is known), `left_out` (those for which
        `audit.seconds` left no time), `idle` (what no work earns under the rubric that is trained on, `idle_reward`; empty
        with another verifier), `exploitable` (the largest upper end of the verifiers that decide at the gate), the
        figures of each under `verifiers` (`figures_of`), and those of each judge under `judges` (`sway_of`).

    Raises:
        ConfigError: an environment or a verifier does not exist, or a part that an objective names.
        DataError: no task has a known solution.
        InputError: a judge's endpoint, model or key is wrong.
    """
    if verifier is not None:
        give(verifier)
    judges = judges_of(config, verifier)
    by_verifier, attempts, unsolved, left_out = _play_and_judge(
        config, tasks, solutions or {}, verifier, config.audit.judged_tasks if judges else 0
    )
    if not by_verifier:
        raise DataError(
            f"no solution is known of any of the {len(tasks)} tasks: the environment names none, and no log solves one"
        )
    if left_out:
        say(f"{left_out} tasks are left out after {config.audit.seconds:g} s (audit.seconds)")
    found = {}
    for spec, (judge, own, judged) in sorted(by_verifier.items()):
        say(f"{parse_kind(spec).kind}: {len(own)} episodes")
        again = _most_repeats(config.audit.seconds, judge.seconds / len(own))
        repeats = repeats_of(spec, own, judged, SEED, again)
        figures = figures_of(own, judged, repeats)
        found[spec] = {"kind": parse_kind(spec).kind, "at_gate": judge.at_gate, **figures}
    swayed = {}
    for spec, rubrics in judges.items() if attempts else ():
        say(f"{parse_kind(spec).kind} of the rubric {' and '.join(rubrics)}: {len(attempts)} tasks")
        swayed[spec] = {"rubrics": rubrics, **sway_of(spec, attempts)}
    idle = {} if verifier else idle_reward(config.rubric, tasks, config.audit.max_idle_reward)
    failed = "failed" in {item["verdict"] for item in (*found.values(), *swayed.values())} or bool(idle.get("reasons"))
    result = {
        "verdict": "failed" if failed else "passed",
        "tasks": len({probe.task.id for _, own, _ in by_verifier.values() for probe in own}),
        "without_solution": unsolved,
        "left_out": left_out,
        "exploitable": max(item["exploitable"]["upper"] for item in found.values() if item["at_gate"]),
        "environments": sorted({probe.task.environment for _, own, _ in by_verifier.values() for probe in own}),
        "limits": config.audit.model_dump(mode="json") | LIMITS,
        "idle": idle,
        "verifiers": found,
        "judges": swayed,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / AUDIT_FILE, result)
    return result


def audit_some(config: AuditSections, tasks: Sequence[Task], out: Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """`audit` of those of the tasks that `tasks_to_audit` chooses: the entry point `graders` of `tracewheel.audits`."""
    return audit(config, tasks_to_audit(config, tasks), out, *args, **kwargs)


def generated_tasks(config: AuditSections) -> list[Task]:
    """Tasks of the profile's environment, made by its generator.

    Raises:
        ConfigError: there is no such environment, or it has too few tasks.
        DataError: it makes none.
    """
    environment = make_environment(config.environment.spec)
    if not isinstance(environment, TaskMaker):
        raise DataError(f"environment {config.environment.kind} makes no tasks: give those of a curation with --curated")
    return environment.make_tasks(config.audit.tasks, SEED)


def tasks_to_audit(config: AuditSections, tasks: Sequence[Task]) -> list[Task]:
    """Some of the tasks, in turn of each family, in an order that follows from their ids."""
    families: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: task.fingerprint):
        families.setdefault(task.family, []).append(task)
    turns = [[own[place] for _, own in sorted(families.items()) if place < len(own)] for place in range(len(tasks))]
    return [task for turn in turns for task in turn][: config.audit.tasks]


def deciding_verifiers(config: AuditSections, task: Task) -> list[str]:
    """The verifiers that decide success: that of the gate, and that of training where it is another one."""
    return list(dict.fromkeys(_first(rubric, task) for rubric in (config.evaluation.rubric or config.rubric, config.rubric)))


def judges_of(config: AuditSections, verifier: str | None = None) -> dict[str, list[str]]:
    """The judges of both rubrics, each with whose it is; of another verifier in their place, only itself."""
    if verifier is not None:
        return {verifier: [TRAINING]} if parse_kind(verifier).kind in JUDGES else {}
    found: dict[str, list[str]] = {}
    for name, rubric in ((TRAINING, config.rubric), (HELD_BACK, config.evaluation.rubric)):
        for term in rubric.verifiers if rubric else ():
            if term.kind in JUDGES:
                found.setdefault(term.spec, []).append(name)
    return found


def _first(rubric: Any, task: Task) -> str:
    term = rubric.verifiers[0]
    return task.verifier if term.kind == "task" else term.spec


def _most_repeats(seconds: float | None, each: float) -> int:
    """How many episodes to judge again where one takes so many seconds: a quarter of the time allowed is for both rounds."""
    if seconds is None or not each:
        return REPEATED
    return min(REPEATED, max(LEAST_REPEATED, int(seconds / 8 / each)))


Asked = tuple[Judge, list[Probe], list[Judged]]


def _play_and_judge(
    config: AuditSections,
    tasks: Sequence[Task],
    solutions: Mapping[str, Sequence[Call]],
    verifier: str | None,
    for_judges: int,
) -> tuple[dict[str, Asked], list[Attempts], int, int]:
    """What each verifier says of its probes, task by task, and attempts at so many tasks to show to judges.

    The numbers are those of the tasks of which no solution is known, and for which there was no time.
    """
    began, done = time.monotonic(), 0
    asked: dict[str, Asked] = {}
    attempts: list[Attempts] = []
    with ExitStack() as opened:
        worlds = {spec: opened.enter_context(open_environment(spec)) for spec in sorted({task.environment for task in tasks})}
        known = {
            task.id: found for task in tasks if (found := _solution(worlds[task.environment], task, solutions)) is not None
        }
        solved = [task for task in tasks if task.id in known]

        for place, task in enumerate(solved):
            if done and config.audit.seconds is not None and time.monotonic() - began > config.audit.seconds:
                break
            near = [solved[(place + step) % len(solved)] for step in range(1, min(OTHERS, len(solved) - 1) + 1)]
            others = [known[other.id] for other in near if other.environment == task.environment]
            world = worlds[task.environment]
            probes = list(probes_of(task, world, known[task.id], others, CHANGES, SEED))
            for number, spec in enumerate([verifier] if verifier else deciding_verifiers(config, task)):
                if spec not in asked:
                    asked[spec] = (Judge(spec), [], [])
                judge, own, judged = asked[spec]
                judge.at_gate |= number == 0
                own += probes
                judged += [judge(task, probe.episode.record()) for probe in probes]
            if done < for_judges:
                attempts.append(attempts_of(task, world, known[task.id], SEED))
            done += 1
        return asked, attempts, len(tasks) - len(solved), len(solved) - done


def _solution(environment: Any, task: Task, solutions: Mapping[str, Sequence[Call]]) -> Sequence[Call] | None:
    own = environment.solution(task) if isinstance(environment, Solver) else None
    return solutions.get(task.id) if own is None else own
