"""Logs of a "deployed" personal assistant, in OpenAI chat format.

The agent knows its apps but has habits: it books and answers without a look at the calendar, which often goes well, does only
the first of several things, and puts in a note what it should send. The tasks that recur, which are those to train on, are
about the first circles of people, all others about the rest: no held-out task shares a person, a meeting, a place or a note
with one trained on. Every episode is played in the real environment. The same seed gives the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from tracewheel import Task
from tracewheel_projects import Deployment, log_line, logged_episodes, played_record
from tracewheel_worlds.assistant.agent import DONE, Call, changes, looks, send, solution, write_note
from tracewheel_worlds.assistant.goals import BOOK, FAMILIES, HOURS, REPLY, SHARE
from tracewheel_worlds.assistant.stock import CIRCLES
from tracewheel_worlds.assistant.tasks import make_task

SLIP_RATE = 0.03
TRAINED_TIERS, HARDER_TIER = (1, 2, 3), 4
TRAINED_CIRCLES, OTHER_CIRCLES = range(4), range(4, CIRCLES)
MODEL = "assistant-2026-11"


def log_lines(seed: int = 0) -> Iterator[bytes]:
    """The lines of the log file, without line ends, in order of time."""
    rng = random.Random(f"assistant-{seed}")
    deployed = Deployment(FAMILIES, TRAINED_TIERS, HARDER_TIER, _one_off, log_record, make_recurring=_recurring)
    for record in logged_episodes(rng, deployed):
        yield log_line(record)


def _recurring(family: str, tier: int, rng: random.Random) -> Task:
    return make_task(family, tier, rng, rng.choice(TRAINED_CIRCLES))


def _one_off(family: str, tier: int, rng: random.Random) -> Task:
    return make_task(family, tier, rng, rng.choice(OTHER_CIRCLES))


def faulty_calls(task: Task, fault: str) -> list[Call]:
    """The calls of an episode of `task` with `fault`; the solution if `fault` is empty."""
    return FAULTS[fault](task) if fault else solution(task)


def _hurry(task: Task) -> list[Call]:
    """Do what the request says as if the calendar were empty, without a look at it."""
    state, goal = {**task.initial_state, "events": []}, task.goal
    looked = [call for call in looks(state, goal) if call[0] != "events"]
    return [*looked, *changes(state, goal), DONE]


def _first_only(task: Task) -> list[Call]:
    """Log the first event of the day, or write to the first person, and take it for everything."""
    looked, made = looks(task.initial_state, task.goal), changes(task.initial_state, task.goal)
    return [*looked, made[0], DONE]


def _first_event(task: Task) -> list[Call]:
    """Log the first event of the day, whichever was asked for; tell whom it should tell."""
    state, goal = task.initial_state, task.goal
    day = changes(state, {"family": HOURS, "tier": 2, "day": goal["day"]})
    sent = [call for call in changes(state, goal) if call[0] == "send"]
    return [*looks(state, goal), day[0], *sent, DONE]


def _forget_last(task: Task) -> list[Call]:
    made = changes(task.initial_state, task.goal)
    return [*looks(task.initial_state, task.goal), *(made[:-1] if len(made) > 1 else made), DONE]


def _note_instead(task: Task) -> list[Call]:
    """Write down the first message instead of sending it."""
    calls = solution(task)
    first = next((place for place, (name, _) in enumerate(calls) if name == "send"), None)
    if first is None:
        return calls
    args = calls[first][1]
    return [*calls[:first], write_note({"title": args["to"], "text": args["text"]}), *calls[first + 1 :]]


def _tell_another(task: Task) -> list[Call]:
    """Write to somebody else, too."""
    calls = solution(task)
    told = {args["to"] for name, args in calls if name == "send"}
    other = next(contact["name"] for contact in task.initial_state["contacts"] if contact["name"] not in told)
    return [*calls[:-1], send(other, "logged"), DONE]


def _invent_tool(task: Task) -> list[Call]:
    return [("find_person", {"name": task.initial_state["contacts"][0]["name"]}), *_forget_last(task)]


FAULTS: dict[str, Callable[[Task], list[Call]]] = {
    "hurry": _hurry,
    "first_only": _first_only,
    "first_event": _first_event,
    "forget_last": _forget_last,
    "note_instead": _note_instead,
    "tell_another": _tell_another,
    "invent_tool": _invent_tool,
}
# Per family: how often the agent has which habit.
HABITS: dict[str, dict[str, float]] = {
    BOOK: {"hurry": 0.5, "forget_last": 0.2},
    REPLY: {"hurry": 0.5, "note_instead": 0.15},
    HOURS: {"first_event": 0.45, "tell_another": 0.2},
    SHARE: {"first_only": 0.4, "note_instead": 0.25},
}


def _choose_fault(task: Task, rng: random.Random) -> str:
    drawn = rng.random()
    for fault, rate in HABITS[task.family].items():
        if drawn < rate:
            return fault
        drawn -= rate
    return "invent_tool" if rng.random() < SLIP_RATE else ""


def log_record(task: Task, user: str, session: str, time: datetime, rng: random.Random) -> dict[str, Any]:
    """The log record of the deployed agent's episode of a task, as JSON types."""
    calls = faulty_calls(task, _choose_fault(task, rng))
    episode = f"{rng.getrandbits(48):012x}"
    return played_record(task, calls, rng, episode=episode, model=MODEL, user=user, session=session, time=time)
