"""Logs of a "deployed" workspace agent, in OpenAI chat format: the traces of the demo.

The agent can solve the tasks but has habits: in certain contexts it usually makes the same mistake. Every episode is played
in the real workspace, so the tools' replies are real. The same seed gives the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.workspace.agent import Call, manifest_call, move_call, solution
from tracewheel.environments.workspace.environment import TOOLS, WorkspaceEnvironment, play
from tracewheel.environments.workspace.tasks import FAMILIES, SOURCES, make_task, selected_files
from tracewheel_projects import Deployment, log_line, logged_episodes, with_broken_lines, with_call_ids


@dataclass(frozen=True)
class Habit:
    """A fault that the agent makes with probability `rate`, in tasks of a family with these source folders and tiers."""

    family: str
    fault: str
    rate: float
    sources: tuple[str, ...] = SOURCES
    tiers: tuple[int, ...] = (2, 3, 4, 5)


HABITS = (
    Habit("prefix", "forget_manifest", 0.60),
    Habit("pattern", "stop_early", 0.58, tiers=(2,)),
    Habit("pattern", "stop_early", 0.66, tiers=(3, 4, 5)),
    Habit("list", "move_one_too_many", 0.60),
    Habit("content", "invent_tool", 0.60, sources=("/inbox", "/intake")),
    Habit("content", "repeat_calls", 0.60, sources=("/queue", "/drop")),
)
SLIP_RATE = 0.03
SLIPS = ("forget_manifest", "stop_early", "move_one_too_many")

TRAINED_TIERS, HARDER_TIER = (2, 3, 4), 5
REWARD_SHARE, WRONG_REWARD_SHARE = 0.7, 0.015
DUPLICATES = 20
MODEL = "workspace-agent-2026-09"


def log_lines(seed: int = 0) -> Iterator[bytes]:
    """The lines of the log file, without line ends, in order of time; some are duplicates, some malformed."""
    rng = random.Random(seed)
    episodes = logged_episodes(rng, Deployment(FAMILIES, TRAINED_TIERS, HARDER_TIER, make_task, log_record))
    lines = [log_line(record) for record in episodes]
    for index in sorted(rng.sample(range(len(lines)), DUPLICATES), reverse=True):
        again = rng.randint(index + 1, min(index + 30, len(lines)))
        lines.insert(again, lines[index])
    yield from with_broken_lines(lines, episodes, rng)


def faulty_calls(task: Task, fault: str) -> list[Call]:
    """The calls of an episode of `task` with `fault`; the solution if `fault` is empty."""
    return FAULTS[fault](task) if fault else solution(task)


def _forget_manifest(task: Task) -> list[Call]:
    return [*_work(task), ("finish", {})]


def _stop_early(task: Task) -> list[Call]:
    work = _work(task)
    last_move = max(index for index, (name, _) in enumerate(work) if name == "move_file")
    end = last_move - 1 if task.family == "content" else last_move
    return _closed(task, work[:end])


def _move_one_too_many(task: Task) -> list[Call]:
    return _closed(task, [*_work(task), _move(task, _unselected(task)[0])])


def _repeat_calls(task: Task) -> list[Call]:
    """Read the first file without the word twice, then move it."""
    source = task.goal["source"]
    repeated = ("read_file", {"path": f"{source}/{_unselected(task)[0]}"})
    work = _work(task)
    at = work.index(repeated) + 1
    return _closed(task, [*work[:at], repeated, _move(task, _unselected(task)[0]), *work[at:]])


def _invent_tool(task: Task) -> list[Call]:
    """Call a tool that does not exist, then move only the first file."""
    work = _work(task)
    first_move = next(index for index, (name, _) in enumerate(work) if name == "move_file")
    return _closed(task, [("search_files", {"path": task.goal["source"]}), *work[: first_move + 1]])


FAULTS: dict[str, Callable[[Task], list[Call]]] = {
    "forget_manifest": _forget_manifest,
    "stop_early": _stop_early,
    "move_one_too_many": _move_one_too_many,
    "repeat_calls": _repeat_calls,
    "invent_tool": _invent_tool,
}


def _work(task: Task) -> list[Call]:
    """The solution without its last three calls, which list the destination, write the manifest and finish."""
    return solution(task)[:-3]


def _closed(task: Task, work: list[Call]) -> list[Call]:
    """The work, then a manifest of the moved files, then `finish`."""
    moved = [args["source"].rsplit("/", 1)[1] for name, args in work if name == "move_file"]
    return [*work, ("list_files", {"path": task.goal["destination"]}), manifest_call(task, moved), ("finish", {})]


def _move(task: Task, name: str) -> Call:
    return move_call(task.goal["source"], name, task.goal["destination"])


def _unselected(task: Task) -> list[str]:
    """Sorted names of the files in the source folder that the task does not select."""
    prefix = task.goal["source"] + "/"
    selected = selected_files(task.initial_state, task.goal)
    names = [path[len(prefix) :] for path in task.initial_state["files"] if path.startswith(prefix)]
    return sorted(name for name in names if name not in selected)


def _choose_fault(task: Task, rng: random.Random) -> str:
    for habit in HABITS:
        if habit.family == task.family and task.goal["source"] in habit.sources and task.tier in habit.tiers:
            if rng.random() < habit.rate:
                return habit.fault
            break
    return rng.choice(SLIPS) if rng.random() < SLIP_RATE else ""


def log_record(task: Task, user: str, session: str, time: datetime, rng: random.Random) -> dict[str, Any]:
    """The log record of the deployed agent's episode of a task, as JSON types."""
    calls = faulty_calls(task, _choose_fault(task, rng))
    episode = f"{rng.getrandbits(48):012x}"
    record: dict[str, Any] = {
        "id": f"chat-{episode}",
        "session": session,
        "user": user,
        "created": time.isoformat().replace("+00:00", "Z"),
        "model": MODEL,
        "messages": with_call_ids(play(task, calls), episode[:8]),
        "tools": TOOLS,
    }
    if rng.random() < REWARD_SHARE:
        reward = _files_after(task, calls) == _files_after(task, solution(task))
        record["reward"] = float(reward != (rng.random() < WRONG_REWARD_SHARE))
    record["environment"] = {"kind": task.environment, "initial_state": task.initial_state, "goal": task.goal}
    return record


def _files_after(task: Task, calls: list[Call]) -> dict[str, str]:
    environment = WorkspaceEnvironment()
    environment.reset(task)
    for name, args in calls:
        environment.step(name, args)
    files: dict[str, str] = environment.snapshot()["files"]
    return files
