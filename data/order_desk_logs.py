"""Logs of a "deployed" order-desk agent, in OpenAI chat format: the traces of `make demo-smollm2`.

The agent knows the work but has habits: in each family it makes one mistake about half of the time. When it took the wrong
tool, and the desk says so, it takes the right one in a quarter of the cases and gives up otherwise. Every episode is played
in the real environment, so the tools' replies are real. Each desk is a user of its own with its own customers and items, so
splits, which keep users together, share neither. The same seed gives the same bytes.

The noisy logs are of the same requests with noise (`tracewheel.environments.order_desk.noise`). There the agent also gives up
when the desk is busy and keeps to a customer's first choice, each about 40% of the time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.base import play_calls
from tracewheel.environments.order_desk.environment import (
    DONE,
    TOOLS,
    Call,
    OrderDeskEnvironment,
    change,
    direct,
    fitting,
    look,
    solution,
    start,
    through_busy,
)
from tracewheel.environments.order_desk.noise import BUSY, FIRST_CHOICE, with_noise
from tracewheel.environments.order_desk.stock import DESKS, UNSEEN
from tracewheel.environments.order_desk.tasks import CANCEL, FAMILIES, REFUND, make_task, wanted
from tracewheel_projects import FIRST_EPISODE, log_line, with_broken_lines, with_call_ids

HABIT_RATE, SLIP_RATE, PUT_RIGHT_RATE = 0.5, 0.04, 0.25
GIVE_UP_RATE, KEEP_FIRST_CHOICE_RATE = 0.4, 0.4
SLIPS = ("invent_tool", "do_not_look")
TRAINED_TIERS, HARDER_TIER = (2, 3, 4), 5
REWARD_SHARE, WRONG_REWARD_SHARE = 0.7, 0.015
MODEL = "order-desk-agent-2026-10"


@dataclass(frozen=True)
class Desks:
    """Desks of one kind: tasks of each family and tier, how often each is attempted, and tasks of the harder tier by family."""

    numbers: range
    per_stratum: int
    attempts: int
    harder: int = 0


# Tasks of the first desks recur, which makes them training tasks (curation.min_attempts). Validation takes the desks with the
# fewest tasks.
RECURRING = Desks(range(UNSEEN), per_stratum=2, attempts=2)
ONE_OFF = Desks(range(UNSEEN, UNSEEN + 8), per_stratum=1, attempts=1)
ONE_OFF_AND_HARDER = Desks(range(UNSEEN + 8, DESKS), per_stratum=1, attempts=1, harder=2)


def log_lines(seed: int = 0, *, noisy: bool = False) -> Iterator[bytes]:
    """The lines of the log file, without line ends, in order of time; a few are malformed."""
    rng = random.Random(f"order-desk-{seed}")
    episodes = _episodes(rng, noisy)
    lines = [log_line(record) for record in episodes]
    yield from with_broken_lines(lines, episodes, rng)


def faulty_calls(task: Task, fault: str) -> list[Call]:
    """The calls of an episode of `task` with `fault`; the solution if `fault` is empty."""
    return through_busy(task, _calls(task, fault))


def _wrong_order(task: Task) -> list[Call]:
    """Take another order of the customer, with the action that fits it."""
    right, customer = wanted(task.initial_state, task.goal), task.goal["customer"]
    own = [order for order in task.initial_state["orders"] if order["customer"] == customer]
    wrong = next(order for order in own if order["id"] not in right)
    return [*start(task), change(task, wrong["id"], fitting(wrong)), DONE]


def _wrong_tool(task: Task) -> list[Call]:
    """Refund what is open, or cancel what has shipped."""
    return [*start(task), *(change(task, number, _other(action)) for number, action in _wanted(task)), DONE]


def _stop_early(task: Task) -> list[Call]:
    return [*start(task), *(change(task, *pair) for pair in _wanted(task)[:-1]), DONE]


def _invent_tool(task: Task) -> list[Call]:
    return [("find_order", {"customer": task.goal["customer"]}), look(task), DONE]


def _do_not_look(task: Task) -> list[Call]:
    asked = task.initial_state.get(FIRST_CHOICE, task.goal.get("item", "all"))
    return [("cancel", {"order": asked}), DONE]


FAULTS: dict[str, Callable[[Task], list[Call]]] = {
    "wrong_order": _wrong_order,
    "wrong_tool": _wrong_tool,
    "stop_early": _stop_early,
    "invent_tool": _invent_tool,
    "do_not_look": _do_not_look,
}
HABITS = {"item": "wrong_order", "status": "wrong_tool", "shipped": "stop_early", "open": "stop_early"}


def keep_first_choice(task: Task) -> list[Call]:
    """The calls of an agent that ignores a second thought."""
    return [*start(task), start(task)[-1], DONE]


def put_right(task: Task) -> list[Call]:
    """The calls of an agent that takes the wrong tool first and, when the desk says so, the right one."""
    pairs = [change(task, number, tool) for number, action in _wanted(task) for tool in (_other(action), action)]
    return [*start(task), *pairs, DONE]


def give_up(task: Task, calls: list[Call]) -> list[Call]:
    """The calls up to the first that finds the desk busy."""
    return [*calls[: min(task.initial_state[BUSY])], DONE]


def _wanted(task: Task) -> list[tuple[str, str]]:
    return list(wanted(task.initial_state, task.goal).items())


def _other(action: str) -> str:
    return REFUND if action == CANCEL else CANCEL


def _calls(task: Task, fault: str) -> list[Call]:
    return FAULTS[fault](task) if fault else direct(task)


def _deployed_calls(task: Task, rng: random.Random) -> list[Call]:
    fault = _choose_fault(task, rng)
    calls = put_right(task) if fault == "wrong_tool" and rng.random() < PUT_RIGHT_RATE else _calls(task, fault)
    if FIRST_CHOICE in task.initial_state and rng.random() < KEEP_FIRST_CHOICE_RATE:
        calls = keep_first_choice(task)
    gives_up = BUSY in task.initial_state and rng.random() < GIVE_UP_RATE
    return give_up(task, calls) if gives_up else through_busy(task, calls)


def _choose_fault(task: Task, rng: random.Random) -> str:
    if rng.random() < HABIT_RATE:
        return HABITS[task.family]
    return rng.choice(SLIPS) if rng.random() < SLIP_RATE else ""


def _episodes(rng: random.Random, noisy: bool) -> list[dict[str, Any]]:
    """All episodes in order of time, before malformed lines are added."""
    seen: set[str] = set()
    jobs: list[tuple[Task, str]] = []
    for kind in (RECURRING, ONE_OFF, ONE_OFF_AND_HARDER):
        for desk in kind.numbers:
            strata = [(family, tier, kind.per_stratum) for family in FAMILIES for tier in TRAINED_TIERS]
            strata += [(family, HARDER_TIER, kind.harder) for family in FAMILIES]
            for family, tier, count in strata:
                tasks = [_fresh(family, tier, desk, seen, rng) for _ in range(count)]
                tasks = [with_noise(task) for task in tasks] if noisy else tasks
                jobs += [(task, f"desk-{desk:02}") for task in tasks * kind.attempts]
    rng.shuffle(jobs)
    time, episodes_of, records = FIRST_EPISODE, Counter[str](), []
    for task, user in jobs:
        time += timedelta(seconds=rng.randint(60, 900))
        session = f"{user}-session-{1 + episodes_of[user] // 4}"
        episodes_of[user] += 1
        records.append(log_record(task, user, session, time, rng))
    return records


def _fresh(family: str, tier: int, desk: int, seen: set[str], rng: random.Random) -> Task:
    while True:
        task = make_task(family, tier, desk, rng)
        if task.fingerprint not in seen:
            seen.add(task.fingerprint)
            return task


def log_record(task: Task, user: str, session: str, time: datetime, rng: random.Random) -> dict[str, Any]:
    """The log record of the deployed agent's episode of a task, as JSON types."""
    environment, episode = OrderDeskEnvironment(), f"{rng.getrandbits(48):012x}"
    messages = play_calls(environment, task, _deployed_calls(task, rng))
    final = environment.snapshot()["orders"]
    record: dict[str, Any] = {
        "id": f"chat-{episode}",
        "session": session,
        "user": user,
        "created": time.isoformat().replace("+00:00", "Z"),
        "model": MODEL,
        "messages": with_call_ids(messages, episode[:8]),
        "tools": TOOLS,
    }
    if rng.random() < REWARD_SHARE:
        play_calls(environment, task, solution(task))
        solved = final == environment.snapshot()["orders"]
        record["reward"] = float(solved != (rng.random() < WRONG_REWARD_SHARE))
    record["environment"] = {"kind": task.environment, "initial_state": task.initial_state, "goal": task.goal}
    return record
