"""Logs of a "deployed" agent that answers questions by searching, in OpenAI chat format.

The agent knows the work but has habits: in each family of questions it makes one mistake more often than not. Every episode
is played in the real environment, so the tools' replies are real. Each desk is a user of its own with its own names and
documents, so splits, which keep users together, share none. The same seed gives the same bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tracewheel import Task
from tracewheel_projects import FIRST_EPISODE, log_line, played_record, with_broken_lines
from tracewheel_worlds.retrieval.agent import Call, answer, look, search, solution
from tracewheel_worlds.retrieval.stock import DESKS
from tracewheel_worlds.retrieval.tasks import BRIDGE, CHAIN, COMPARISON, FACT, FAMILIES, document_of, make_task
from tracewheel_worlds.retrieval.world import BORN

HABIT_RATE, SLIP_RATE = 0.68, 0.04
SLIPS = ("wrong_entity", "repeat_search")
TRAINED_TIERS, HARDER_TIER = (1, 2, 3), 4
WRONG_REWARD_SHARE = 0.015
MODEL = "retrieval-agent-2026-10"


@dataclass(frozen=True)
class Desks:
    """Desks of one kind: tasks of each family and tier, how often each is attempted, and tasks of the harder tier by family."""

    numbers: range
    per_stratum: int
    attempts: int
    harder: int = 0


# Tasks of the first desks recur, which makes them training tasks (curation.min_attempts). Validation takes small desks first.
RECURRING = Desks(range(7), per_stratum=2, attempts=4)
SMALL = Desks(range(7, 9), per_stratum=5, attempts=1)
ONE_OFF = Desks(range(9, DESKS), per_stratum=6, attempts=1, harder=9)


def log_lines(seed: int = 0) -> Iterator[bytes]:
    """The lines of the log file, without line ends, in order of time; a few are malformed."""
    rng = random.Random(f"retrieval-{seed}")
    episodes = _episodes(rng)
    lines = [log_line(record) for record in episodes]
    yield from with_broken_lines(lines, episodes, rng)


def faulty_calls(task: Task, fault: str) -> list[Call]:
    """The calls of an episode of `task` with `fault`; the solution if `fault` is empty."""
    return FAULTS[fault](task) if fault else solution(task)


def _copy_title(task: Task) -> list[Call]:
    """Answer with the title of the document that holds the answer."""
    *found, _ = solution(task)
    return [*found, answer(task.goal["hops"][-1])]


def _stop_early(task: Task) -> list[Call]:
    """Take the name in the last document but one for the answer."""
    return [*solution(task)[:-3], answer(task.goal["hops"][-1])]


def _first_named(task: Task) -> list[Call]:
    """Read about the first of two people alone, and answer for that one: right if it is the elder."""
    first, documents = task.goal["hops"][0], task.initial_state["documents"]
    text = document_of(documents, first)["text"].rstrip(".")
    born, employer = text.split(". Works for ")
    return [*look(task, first), answer(born.split(" in ")[-1] if task.goal["steps"] == [BORN] else employer)]


def _wrong_entity(task: Task) -> list[Call]:
    """Open a document that was not asked for, and answer with its title."""
    known = [*task.goal["hops"], *task.goal["answers"]]
    other = next(one["title"] for one in task.initial_state["documents"] if one["title"] not in known)
    return [*look(task, other), answer(other)]


def _repeat_search(task: Task) -> list[Call]:
    """Search for the same twice, and answer with what was searched for."""
    first = task.goal["hops"][0]
    return [search(first), search(first), answer(first)]


FAULTS: dict[str, Callable[[Task], list[Call]]] = {
    "copy_title": _copy_title,
    "stop_early": _stop_early,
    "first_named": _first_named,
    "wrong_entity": _wrong_entity,
    "repeat_search": _repeat_search,
}
HABITS = {FACT: "copy_title", BRIDGE: "stop_early", CHAIN: "stop_early", COMPARISON: "first_named"}


def _choose_fault(task: Task, rng: random.Random) -> str:
    if rng.random() < HABIT_RATE:
        return HABITS[task.family]
    return rng.choice(SLIPS) if rng.random() < SLIP_RATE else ""


def _episodes(rng: random.Random) -> list[dict[str, Any]]:
    """All episodes in order of time, before malformed lines are added."""
    jobs: list[tuple[Task, str]] = []
    for kind in (RECURRING, SMALL, ONE_OFF):
        for desk in kind.numbers:
            strata = [(family, tier, kind.per_stratum) for family in FAMILIES for tier in TRAINED_TIERS]
            strata += [(family, HARDER_TIER, kind.harder) for family in FAMILIES]
            for family, tier, count in strata:
                tasks = [make_task(family, tier, desk, rng) for _ in range(count)]
                jobs += [(task, f"desk-{desk:02}") for task in tasks * kind.attempts]
    rng.shuffle(jobs)
    time, episodes_of, records = FIRST_EPISODE, Counter[str](), []
    for task, user in jobs:
        time += timedelta(seconds=rng.randint(60, 900))
        session = f"{user}-session-{1 + episodes_of[user] // 4}"
        episodes_of[user] += 1
        records.append(log_record(task, user, session, time, rng))
    return records


def log_record(task: Task, user: str, session: str, time: datetime, rng: random.Random) -> dict[str, Any]:
    """The log record of the deployed agent's episode of a task, as JSON types."""
    episode = f"{rng.getrandbits(48):012x}"
    calls = faulty_calls(task, _choose_fault(task, rng))
    about = {"episode": episode, "model": MODEL, "user": user, "session": session, "time": time}
    return played_record(task, calls, rng, **about, wrong_rewards=WRONG_REWARD_SHARE)
