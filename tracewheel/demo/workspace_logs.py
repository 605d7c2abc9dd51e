"""Logs of a "deployed" workspace agent, in OpenAI chat format: the traces of the demo.

The agent can solve the tasks but has habits: in certain contexts it usually makes the same mistake. Every episode is played
in the real workspace, so the tools' replies are real. The same seed gives the same bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.workspace.agent import Call, manifest_call, move_call, solution
from tracewheel.environments.workspace.environment import TOOLS, WorkspaceEnvironment
from tracewheel.environments.workspace.episode import play
from tracewheel.environments.workspace.tasks import FAMILIES, SOURCES, make_task, selected_files


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

RECURRING_PER_STRATUM, ATTEMPTS, RECURRING_USERS = 6, 4, 12
ONE_OFF_PER_STRATUM, HARDER_PER_FAMILY = 30, 28
TRAINED_TIERS, HARDER_TIER = (2, 3, 4), 5
REWARD_SHARE, WRONG_REWARD_SHARE = 0.7, 0.015
DUPLICATES = 20
MODEL = "workspace-agent-2026-09"
FIRST_EPISODE = datetime(2026, 10, 1, 8, 0, tzinfo=UTC)


def log_lines(seed: int = 0) -> Iterator[bytes]:
    """The lines of the log file, without line ends, in order of time; some are duplicates, some malformed."""
    rng = random.Random(seed)
    episodes = logged_episodes(rng, Deployment(FAMILIES, TRAINED_TIERS, HARDER_TIER, make_task, log_record))
    lines = [log_line(record) for record in episodes]
    for index in sorted(rng.sample(range(len(lines)), DUPLICATES), reverse=True):
        again = rng.randint(index + 1, min(index + 30, len(lines)))
        lines.insert(again, lines[index])
    for spoil in BREAKAGES:
        index = rng.randrange(len(lines))
        lines.insert(index, spoil(episodes[rng.randrange(len(episodes))]))
    yield from lines


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


@dataclass(frozen=True)
class Deployment:
    """A deployed agent whose logs are made: the families and tiers of its tasks, and what makes a task and a log record.

    `make_recurring` makes the tasks that recur, which are those to train on, where they are to differ from the others.
    """

    families: tuple[str, ...]
    trained_tiers: tuple[int, ...]
    harder_tier: int
    make_task: Callable[[str, int, random.Random], Task]
    log_record: Callable[[Task, str, str, datetime, random.Random], dict[str, Any]]
    make_recurring: Callable[[str, int, random.Random], Task] | None = None


def logged_episodes(rng: random.Random, deployed: Deployment) -> list[dict[str, Any]]:
    """All episodes, in order of time, before duplicates and malformed lines are added."""
    recurring, one_off = _tasks(rng, deployed)
    jobs = [(task, f"user-{1 + index % RECURRING_USERS:03}") for index, task in enumerate(recurring * ATTEMPTS)]
    user = 100
    for index, task in enumerate(one_off):
        user += index == 0 or rng.random() < 0.8 or jobs[-2][1] == f"user-{user}"
        jobs.append((task, f"user-{user}"))
    rng.shuffle(jobs)
    time, episodes_of = FIRST_EPISODE, dict.fromkeys((user for _, user in jobs), 0)
    records = []
    for task, who in jobs:
        time += timedelta(seconds=rng.randint(60, 1800))
        session = f"{who}-session-{1 + episodes_of[who] // 3}"
        episodes_of[who] += 1
        records.append(deployed.log_record(task, who, session, time, rng))
    return records


def _tasks(rng: random.Random, deployed: Deployment) -> tuple[list[Task], list[Task]]:
    """Recurring tasks, and one-off tasks including those of the harder tier; all are distinct."""
    seen: set[str] = set()

    def fresh(family: str, tier: int, count: int, make: Callable[[str, int, random.Random], Task]) -> list[Task]:
        tasks: list[Task] = []
        while len(tasks) < count:
            task = make(family, tier, rng)
            if task.fingerprint not in seen:
                seen.add(task.fingerprint)
                tasks.append(task)
        return tasks

    strata = [(family, tier) for family in deployed.families for tier in deployed.trained_tiers]
    make, make_recurring = deployed.make_task, deployed.make_recurring or deployed.make_task
    recurring = [task for family, tier in strata for task in fresh(family, tier, RECURRING_PER_STRATUM, make_recurring)]
    one_off = [task for family, tier in strata for task in fresh(family, tier, ONE_OFF_PER_STRATUM, make)]
    rng.shuffle(one_off)
    harder = [task for family in deployed.families for task in fresh(family, deployed.harder_tier, HARDER_PER_FAMILY, make)]
    return recurring, one_off + harder


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


def with_call_ids(messages: list[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    """The same episode with call ids that are unique across episodes, like a provider's."""
    renamed = []
    for message in messages:
        if "tool_calls" in message:
            calls = [{**call, "id": call["id"].replace("_", f"_{prefix}", 1)} for call in message["tool_calls"]]
            message = {**message, "tool_calls": calls}
        elif "tool_call_id" in message:
            message = {**message, "tool_call_id": message["tool_call_id"].replace("_", f"_{prefix}", 1)}
        renamed.append(message)
    return renamed


def log_line(record: Any) -> bytes:
    """A record as a line of the log, without line end."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def _truncated(record: dict[str, Any]) -> bytes:
    line = log_line(record)
    return line[: len(line) * 2 // 3]


def _arguments_not_json(record: dict[str, Any]) -> bytes:
    first_call = record["messages"][2]["tool_calls"][0]
    spoiled = {**first_call, "function": {**first_call["function"], "arguments": "{path: /inbox"}}
    messages = [*record["messages"][:2], {**record["messages"][2], "tool_calls": [spoiled]}, *record["messages"][3:]]
    return log_line({**record, "messages": messages})


def _unknown_call_id(record: dict[str, Any]) -> bytes:
    stray = {**record["messages"][3], "tool_call_id": "call_of_nobody"}
    return log_line({**record, "messages": [*record["messages"][:3], stray, *record["messages"][4:]]})


def _not_an_object(record: dict[str, Any]) -> bytes:
    return log_line(record["messages"])


def _no_messages(record: dict[str, Any]) -> bytes:
    return log_line({key: value for key, value in record.items() if key != "messages"})


def _invalid_utf8(record: dict[str, Any]) -> bytes:
    return log_line(record).replace(b"/", b"\xff\xfe", 1)


BREAKAGES = (_truncated, _arguments_not_json, _unknown_call_id, _not_an_object, _no_messages, _invalid_utf8)
