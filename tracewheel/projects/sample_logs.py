"""The sample's logs: three days of an agent that knows its work and has a bad habit. Equal calls give equal bytes.

The agent looks into the folder and moves one file after the other, but often it ends one file too early.
Each episode is played in the sample's environment, so the tools' replies are real.
"""

from __future__ import annotations

import json
import random
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.episode import play_calls
from tracewheel.projects.sample.environment import FileDesk

DAYS = ("monday", "tuesday", "wednesday")
TASKS, RECURRING, ATTEMPTS = 84, 30, 3  # tasks of all days; of these, tasks that come back, and how often
HABIT = 0.6
# Words that the tiny base policy knows as one token each.
STEMS = [
    f"{group}{number}" for group in ("inv", "ord", "tax", "memo", "plan", "scan", "bill", "note") for number in range(1, 6)
]
KINDS = (".log", ".txt", ".csv", ".pdf", ".md", ".bak")
SOURCES, DESTINATIONS = ("/inbox", "/intake", "/queue", "/drop"), ("/archive", "/vault", "/store", "/done")
TEXTS = ("urgent", "paid", "draft", "void", "final", "spam")

Call = tuple[str, dict[str, str]]


def sample_logs(kind: str, seed: int = 0) -> dict[str, str]:
    """The log files by name. `kind`: of the environment, as the project names it."""
    rng = random.Random(f"sample-{seed}")
    wanted: dict[str, dict[str, Any]] = {}
    while len(wanted) < TASKS:
        logged = _logged_task(rng, "one_kind" if len(wanted) % 2 else "two_kinds")
        wanted.setdefault(json.dumps(logged), logged)
    tasks = list(wanted.values())
    episodes = [task for task in tasks[:RECURRING] for _ in range(ATTEMPTS)] + tasks[RECURRING:]
    rng.shuffle(episodes)
    lines: dict[str, list[str]] = {f"{day}.jsonl": [] for day in DAYS}
    for number, logged in enumerate(episodes):
        day = list(lines)[number * len(DAYS) // len(episodes)]
        lines[day].append(json.dumps(_record(number, logged, kind, rng), separators=(",", ":")))
    return {name: "\n".join(rows) + "\n" for name, rows in lines.items()}


def _logged_task(rng: random.Random, family: str) -> dict[str, Any]:
    """A starting point and a goal: three files of one or two kinds to move, and up to two others that stay."""
    source, destination = rng.choice(SOURCES), rng.choice(DESTINATIONS)
    one, other, *rest = rng.sample(KINDS, 4)
    moved = [one, one, one] if family == "one_kind" else [one, one, other]
    kinds = [*moved, *rest[: rng.randint(0, 2)]]
    names = sorted(stem + kind for stem, kind in zip(rng.sample(STEMS, len(kinds)), kinds, strict=True))
    files = {f"{source}/{name}": rng.choice(TEXTS) for name in names}
    goal = {_goal(path, moved, destination): text for path, text in files.items()}
    asked = " and ".join(f"*{kind}" for kind in dict.fromkeys(moved))
    prompt = f"Move all files matching {asked} from {source} to {destination}."
    return {"prompt": prompt, "family": family, "files": files, "goal": dict(sorted(goal.items()))}


def _goal(path: str, moved: list[str], destination: str) -> str:
    """Where a file belongs."""
    return f"{destination}/{path.rpartition('/')[2]}" if path.endswith(tuple(moved)) else path


def _record(number: int, logged: dict[str, Any], kind: str, rng: random.Random) -> dict[str, Any]:
    """A line of the log: what the agent did, and where it began."""
    prompt, start = logged["prompt"], {name: value for name, value in logged.items() if name != "prompt"}
    desk = FileDesk()
    task = desk.task_from_log(prompt, start)
    messages = play_calls(desk, task, _calls(task, rng))
    return {"id": f"chat-{number:03}", "messages": messages, "tools": desk.tools(), "environment": {"kind": kind, **start}}


def _calls(task: Task, rng: random.Random) -> list[Call]:
    """What the agent does: it looks, moves one file after the other, and ends; by habit one file too early."""
    source = next(iter(task.initial_state["files"])).rpartition("/")[0]
    moves: list[Call] = []
    for path in task.goal["files"]:
        folder, _, name = path.rpartition("/")
        if folder != source:
            moves.append(("move_file", {"source": f"{source}/{name}", "destination": folder}))
    moves = moves[:-1] if rng.random() < HABIT else moves
    return [("list_files", {"path": source}), *moves, ("finish", {})]
