"""Logs of an agent that does what its system prompt says: what a policy that follows prompts is trained on.

The agent moves two or three files, and has a habit in each family. A sentence in its prompt cures it:

| family | habit | cured by |
|---|---|---|
| prefix | writes no manifest | `RULES["manifest"]` |
| pattern | leaves the last match where it is | `RULES["every"]` |
| list | moves one file that is not listed | `RULES["only"]` |

Each task is logged under several prompts, each with any of these sentences and of `IDLE`, which change nothing.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from tracewheel import Task, make_environment
from tracewheel_projects import FIRST_EPISODE, log_line, played_record

BASE = "You are a file-management agent."
RULES = {
    "manifest": "Write the manifest before you finish.",
    "every": "Move every file that matches.",
    "only": "Read the list and move nothing else.",
}
IDLE = ("Be brief.", "Finish soon.", "Keep calm.")
TIERS = (2, 3)
CURES = {"prefix": "manifest", "pattern": "every", "list": "only"}
MODEL = "workspace-agent-obedient"
Call = tuple[str, dict[str, Any]]


def log_lines(tasks: int, attempts: int, seed: int = 0) -> Iterator[bytes]:
    """The lines of the log; equal arguments give equal bytes."""
    rng, time = random.Random(f"obedient-{seed}"), FIRST_EPISODE
    world = make_environment("workspace")
    found = world.make_tasks(tasks * 4, seed)  # type: ignore[attr-defined]
    made = [task for task in found if task.family in CURES and task.tier in TIERS][:tasks]
    jobs = [task for task in made for _ in range(attempts)]
    rng.shuffle(jobs)
    for number, task in enumerate(jobs):
        rules = {name for name in RULES if rng.random() < 0.5}
        calls = obeyed(world.solution(task), task, rules)  # type: ignore[attr-defined]
        time += timedelta(seconds=rng.randint(60, 900))
        record = played_record(
            task,
            calls,
            rng,
            episode=f"{rng.getrandbits(48):012x}",
            model=MODEL,
            user=f"user-{task.id}",
            session=f"session-{number}",
            time=time,
        )
        said = [RULES[name] for name in rules] + [text for text in IDLE if rng.random() < 0.25]
        rng.shuffle(said)
        record["messages"][0]["content"] = " ".join([BASE, *said])
        yield log_line(record)


def obeyed(solution: list[Call], task: Task, rules: set[str]) -> list[Call]:
    """The agent's calls under a prompt with these rules."""
    cure = CURES[task.family]
    if cure in rules:
        return solution
    work, (look, _, finish) = solution[:-3], solution[-3:]
    if cure == "manifest":
        return [*work, finish]
    if cure == "every":
        last = max(at for at, (name, _) in enumerate(work) if name == "move_file")
        work = work[:last]
    else:
        source, destination = task.goal["source"], task.goal["destination"]
        asked = {args["source"] for name, args in work if name == "move_file"}
        spared = sorted(path for path in task.initial_state["files"] if path.startswith(f"{source}/") and path not in asked)
        work = [*work, *[("move_file", {"source": path, "destination": destination}) for path in spared[:1]]]
    moved = sorted(args["source"].rpartition("/")[2] for name, args in work if name == "move_file")
    return [*work, look, ("write_file", {"path": task.goal["manifest"], "content": json.dumps(moved)}), finish]


def obedient(tasks: Iterable[Task]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The same agent behind an endpoint: a chat request to its next message. It knows these tasks by their requests."""
    world = make_environment("workspace")
    known: dict[str, list[Task]] = {}
    for task in tasks:
        known.setdefault(task.prompt, []).append(task)
    lock = threading.Lock()  # it has one world

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        system, request = (message["content"] for message in body["messages"][:2])
        rules = {name for name, sentence in RULES.items() if sentence in system}
        replies = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        with lock:
            calls = next(
                calls for calls in map(plan(rules), known[request]) if replied(calls[0], calls[1], len(replies)) == replies
            )
        name, args = calls[1][len(replies)]
        function = {"name": name, "arguments": json.dumps(args)}
        return {"tool_calls": [{"id": f"call_{len(replies)}", "type": "function", "function": function}]}

    def plan(rules: set[str]) -> Callable[[Task], tuple[Task, list[Call]]]:
        return lambda task: (task, obeyed(world.solution(task), task, rules))  # type: ignore[attr-defined]

    def replied(task: Task, calls: list[Call], count: int) -> list[str]:
        """What the world has replied to the first calls: tasks with equal requests are told apart by it."""
        world.reset(task)
        return [world.step(name, args).text for name, args in calls[:count]]

    return answer
