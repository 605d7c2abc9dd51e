"""Logs of a "deployed" agent, of any world: which tasks it gets, the records of its episodes, and lines that are malformed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tracewheel import Task, episode_from, make_environment, make_verifier, play_calls, verdict_of

RECURRING_PER_STRATUM, ATTEMPTS, RECURRING_USERS = 6, 4, 12
ONE_OFF_PER_STRATUM, HARDER_PER_FAMILY = 30, 28
FIRST_EPISODE = datetime(2026, 10, 1, 8, 0, tzinfo=UTC)
REWARD_SHARE = 0.7


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


def played_record(
    task: Task,
    calls: Iterable[tuple[str, dict[str, Any]]],
    rng: random.Random,
    *,
    episode: str,
    model: str,
    user: str,
    session: str,
    time: datetime,
    wrong_rewards: float = 0.0,
) -> dict[str, Any]:
    """The record in OpenAI chat format of an episode of these calls, as JSON types; some records have a reward.

    Args:
        task: What the agent was asked.
        calls: What it did.
        rng: Draws which records have a reward, and which of them a wrong one.
        episode: The episode's name, hexadecimal.
        model: The model's name.
        user: Whose episode it is.
        session: In which session.
        time: When.
        wrong_rewards: The share of rewards that are wrong.
    """
    environment = make_environment(task.environment)
    messages = play_calls(environment, task, calls)
    record: dict[str, Any] = {
        "id": f"chat-{episode}",
        "session": session,
        "user": user,
        "created": time.isoformat().replace("+00:00", "Z"),
        "model": model,
        "messages": with_call_ids(messages, episode[:8]),
        "tools": environment.tools(),
    }
    if rng.random() < REWARD_SHARE:
        state = environment.snapshot()
        start = next((place for place, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
        verdict = verdict_of(make_verifier(task.verifier), task, state, lambda: episode_from(messages, start, state))
        wrong = bool(wrong_rewards) and rng.random() < wrong_rewards
        record["reward"] = float(verdict.total != 1.0) if wrong else verdict.total
    record["environment"] = {"kind": task.environment, "initial_state": task.initial_state, "goal": task.goal}
    return record


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


def with_broken_lines(lines: list[bytes], episodes: list[dict[str, Any]], rng: random.Random) -> list[bytes]:
    """A log with a few malformed lines, made of some of its episodes."""
    lines = [*lines]
    for spoil in BREAKAGES:
        lines.insert(rng.randrange(len(lines)), spoil(episodes[rng.randrange(len(episodes))]))
    return lines
