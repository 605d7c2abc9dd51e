"""What the best constant policy earns: one that does the same on every task, whatever it is asked. The floor of a comparison.

The behaviours are to do nothing, each frequent right answer, and each frequent call, pair of last calls and whole episode of
the known solutions and the logs, with their arguments as they are. For each environment the one that solves most tasks of the
training and validation splits is played on held-out ones: chosen as a policy is, so that its rate has no luck in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tracewheel.config import RubricConfig
from tracewheel.core.files import read_batches, read_columns
from tracewheel.core.inference import wilson_interval
from tracewheel.core.kinds import parse_kind
from tracewheel.core.time_limits import Job, Timer, WatchedThreads
from tracewheel.core.types import Task, Trajectory, canonical_json
from tracewheel.curation.curated_folder import EPISODES_FILE, HELD_OUT, TRAIN, VALIDATION, load_tasks
from tracewheel.environments import (
    TEXT_TURN,
    Environment,
    Replier,
    open_environment,
    opening_messages,
    repeat,
    repeats_replies,
    wanted_threads,
)
from tracewheel.environments.base import turn_messages
from tracewheel.scoring.rubric import Rubric, success_of

Calls = tuple[tuple[str, dict[str, Any]], ...]
MOST_CHOSEN_ON, MOST_MEASURED, MOST_EPISODES, MOST_OF_A_SORT, SECONDS = 48, 200, 500, 8, 60.0
OF_MODELS = ("judge", "relative_judge", "reward_model")


def best_constant_policy(rubric: RubricConfig, curated: Path) -> dict[str, Any]:
    """The best constant policy on the held-out tasks of a folder that `curate` wrote.

    Args:
        rubric: The one that decides on held-out tasks.
        curated: The folder. At most 200 held-out tasks of each environment are played, for a minute at most.

    Returns:
        `success`, `interval` (95%) and `n` over all environments that were measured, None, None and 0 without any;
        `environments`: of each `environment`, what it `does`, `success` and `n`, or why it is `not_measured`; and `says`, a
        sentence.
    """
    known = [task for split in (TRAIN, VALIDATION) for task in load_tasks(curated, split)]
    held_out = load_tasks(curated, HELD_OUT)
    rows, solved, count = [], 0.0, 0
    for name in sorted({task.environment for task in held_out}):
        here = [[task for task in tasks if task.environment == name] for tasks in (known, held_out)]
        found = within(SECONDS, partial(_measured, rubric, here[0], here[1], curated))
        if "n" in found:
            solved, count = solved + found["success"] * found["n"], count + found["n"]
        rows.append({"environment": parse_kind(name).kind, **found})
    return {
        "success": solved / count if count else None,
        "interval": list(wilson_interval(round(solved), count)) if count else None,
        "n": count,
        "environments": rows,
        "says": "; ".join(map(_sentence, rows)),
    }


def _sentence(row: dict[str, Any]) -> str:
    what = f"not measured: {row['not_measured']}" if "not_measured" in row else f"{row['does']} ({row['success']:.1%})"
    return f"{row['environment']}: {what}"


def within(seconds: float, work: partial[dict[str, Any]]) -> dict[str, Any]:
    """What the work returns, or why there is nothing: a floor never ends a run."""
    job = Job(work, Timer(seconds, names=("the time for the best constant policy", "")), "its episodes")
    threads = WatchedThreads(1, "constant-policy")
    try:
        threads.run([job])
    finally:
        threads.close()
    if isinstance(job.error, Exception):
        return {"not_measured": f"{type(job.error).__name__}: {job.error}"[:200]}
    if job.error is not None:
        raise job.error
    found: dict[str, Any] = job.result
    return found


def asks_or_waits(rubric: RubricConfig, tasks: Sequence[Task]) -> str:
    """Why many episodes of tasks of one environment cannot be played and judged at once, or ""."""
    asked = {term.kind for term in rubric.verifiers} | {parse_kind(task.verifier).kind for task in tasks}
    if models := sorted(asked & set(OF_MODELS)):
        return f"its verifier '{models[0]}' asks a model"
    waits = wanted_threads(tasks[0].environment, 0)
    return "its tools run boxes, processes or servers, which takes long" if waits else ""


def _measured(rubric: RubricConfig, known: Sequence[Task], held_out: Sequence[Task], curated: Path) -> dict[str, Any]:
    if why := asks_or_waits(rubric, held_out):
        return {"not_measured": why}
    judges = Rubric(rubric, [*known, *held_out])
    with open_environment(held_out[0].environment) as environment:
        if isinstance(environment, Replier) and not repeats_replies(environment):
            return {"not_measured": "its user is a model"}
        sample = sorted(known, key=lambda task: task.fingerprint)[:MOST_CHOSEN_ON]
        best: tuple[float, int, str, Calls] | None = None
        for calls in behaviours(environment, known, curated):
            if rates := _successes(judges, environment, sample, calls):
                found = (sum(rates) / len(rates), -len(calls), canonical_json(calls), calls)
                best = max(best, found, key=lambda one: one[:3]) if best else found
        chosen: Calls = best[3] if best else ()
        measured = sorted(held_out, key=lambda task: task.fingerprint)[:MOST_MEASURED]
        rates = _successes(judges, environment, measured, chosen)
    if not rates:
        return {"not_measured": "no such episode could be scored"}
    return {"does": described(chosen), "success": sum(rates) / len(rates), "n": len(rates)}


def described(calls: Calls) -> str:
    """A behaviour in words."""
    said = [f"says {args['text']!r}" if name == TEXT_TURN else f"{name}({_arguments(args)})" for name, args in calls]
    text = ", ".join(said) or "does nothing"
    return text if len(text) <= 160 else f"{text[:159]}…"


def _arguments(args: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in args.items())


def behaviours(environment: Environment, known: Sequence[Task], curated: Path) -> list[Calls]:
    """What a constant policy may do, each once: nothing, and the most frequent of each sort in solutions, logs and goals."""
    solver = getattr(environment, "solution", None)
    solved = [tuple(calls) for task in known if callable(solver) and (calls := solver(task))]
    logged = list(_logged(curated, {task.id for task in known}))
    sorts: list[Iterable[Calls]] = [
        [*solved, *logged],
        [(call,) for calls in (*solved, *logged) for call in calls],
        [calls[-2:] for calls in (*solved, *logged) if len(calls) > 1],
        [((TEXT_TURN, {"text": text}),) for task in known for text in answers_of(task)],
    ]
    found: dict[str, Calls] = {canonical_json(()): ()}
    for sort in sorts:
        counts = Counter(canonical_json(calls) for calls in sort)
        frequent = sorted(counts, key=lambda text: (-counts[text], text))[:MOST_OF_A_SORT]
        found |= {text: tuple((name, args) for name, args in json.loads(text)) for text in frequent}
    return list(found.values())


def answers_of(task: Task) -> list[str]:
    """The right answers of a task's goal as one may say them."""
    given = next((task.goal[key] for key in ("answer", "answers") if key in task.goal), None)
    answers = given[:1] if isinstance(given, list) else [given]
    texts = [answer if isinstance(answer, str) else json.dumps(answer) for answer in answers if answer is not None]
    return [f"\\boxed{{{text}}}" if parse_kind(task.verifier).kind == "math" else text for text in texts]


def _logged(curated: Path, tasks: set[str]) -> Iterable[Calls]:
    """What the agent of the logs did in its first episodes of these tasks."""
    if "messages" not in read_columns(curated / EPISODES_FILE):
        return
    read = 0
    for batch in read_batches(curated / EPISODES_FILE, 64, ["task_id", "messages"]):
        for row in batch.to_pylist():
            if row["task_id"] in tasks and read < MOST_EPISODES:
                read += 1
                yield tuple(_done(json.loads(row["messages"])))
        if read >= MOST_EPISODES:
            return


def _done(messages: Sequence[dict[str, Any]]) -> Iterable[tuple[str, dict[str, Any]]]:
    for message in messages:
        if message["role"] != "assistant":
            continue
        for call in message.get("tool_calls") or ():
            try:
                arguments = json.loads(call["function"]["arguments"])
            except ValueError:
                continue
            if isinstance(arguments, dict):
                yield call["function"]["name"], arguments
        if not message.get("tool_calls") and message.get("content"):
            yield TEXT_TURN, {"text": message["content"]}


def _successes(rubric: Rubric, environment: Environment, tasks: Sequence[Task], calls: Calls) -> list[float]:
    """1 or 0 for each task whose episode is scored."""
    scores = [rubric.score(task, constant_episode(environment, task, calls)) for task in tasks]
    return [success_of(score) for score in scores if score.status == "scored"]


def constant_episode(environment: Environment, task: Task, calls: Calls) -> Trajectory:
    """The episode in which a task gets these calls. What is said to an environment that does not answer ends it."""
    environment.reset(task)
    messages, turns = opening_messages(environment, task), list[dict[str, Any]]()
    answers = isinstance(environment, Replier)
    # Words end an episode where nobody answers, so only the last count there.
    words = [] if answers else [call for call in calls if call[0] == TEXT_TURN][-1:]
    for number, (tool, args) in enumerate(calls if answers else [*(call for call in calls if call[0] != TEXT_TURN), *words]):
        observation = repeat(environment, tool, args)
        ended = observation.done or bool(observation.fault) or (tool == TEXT_TURN and not answers)
        messages += turn_messages(number, tool, args, None if ended else observation.text)
        turn = {"start": 0, "end": 0, "calls": int(tool != TEXT_TURN), "malformed": 0, "policy_version": 0}
        turns.append(turn | ({} if observation.reward is None else {"reward": observation.reward}))
        if ended:
            break
    return Trajectory(
        id=task.id,
        task_id=task.id,
        group=task.id,
        sample=0,
        seed=0,
        policy_version=0,
        temperature=0.0,
        token_ids=[],
        action_mask=[],
        logprobs=[],
        turns=turns,
        final_state=environment.snapshot(),
        messages=messages,
        stop_reason="finished",
    )
