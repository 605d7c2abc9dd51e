"""Logs of a "deployed" agent at the refund desk, in OpenAI chat format, with what the customers said.

The agent knows the work but has habits: it hurries, which often goes well, and pays gift cards back to a card. A hurried
refund is right by luck when the item was not used, so outcomes alone do not tell the habit from the policy. Every episode is
played in the real environment with the scripted customer. The same seed gives the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.base import play_calls
from tracewheel.environments.refund_desk.environment import (
    ASK_INSTEAD,
    TOOLS,
    Call,
    RefundDeskEnvironment,
    close,
    deed,
    lookup,
    say,
    solution,
)
from tracewheel.environments.refund_desk.policy import CARD, DONE, EXCHANGE, REFUND, final_wish
from tracewheel.environments.refund_desk.tasks import FAMILIES, make_task
from tracewheel.scoring.verifiers.refund_desk import RefundDeskVerifier
from tracewheel_projects import Deployment, log_line, logged_episodes, with_call_ids

HABIT_RATE, SLIP_RATE = 0.7, 0.03
TRAINED_TIERS, HARDER_TIER = (1, 2, 3), 4
REWARD_SHARE = 0.7
MODEL = "refund-desk-agent-2026-10"


def log_lines(seed: int = 0) -> Iterator[bytes]:
    """The lines of the log file, without line ends, in order of time."""
    rng = random.Random(f"refund-desk-{seed}")
    for record in logged_episodes(rng, Deployment(FAMILIES, TRAINED_TIERS, HARDER_TIER, make_task, log_record)):
        yield log_line(record)


def faulty_calls(task: Task, fault: str) -> list[Call]:
    """The turns of an episode of `task` with `fault`; the solution if `fault` is empty."""
    return FAULTS[fault](task) if fault else solution(task)


def _hurry(task: Task) -> list[Call]:
    """Do what the customer wants: look at neither the date nor the status, and do not ask whether the item was used."""
    wish, change = final_wish(task.initial_state), task.initial_state["user"]["change"]
    questions = [say(ASK_INSTEAD)] if wish.action == EXCHANGE and not change else []
    return [*lookup(task), *questions, deed(task), close(DONE[wish.action])]


def _pay_to_card(task: Task) -> list[Call]:
    return [(name, {**args, "to": CARD} if name == REFUND else args) for name, args in solution(task)]


def _invent_tool(task: Task) -> list[Call]:
    return [("get_policy", {"order": task.goal["order"]["id"]}), *_hurry(task)]


FAULTS: dict[str, Callable[[Task], list[Call]]] = {
    "hurry": _hurry,
    "pay_to_card": _pay_to_card,
    "invent_tool": _invent_tool,
}
HABITS = {"refund": "hurry", "gift": "pay_to_card", "exchange": "hurry", "cancel": "hurry"}


def _choose_fault(task: Task, rng: random.Random) -> str:
    if rng.random() < HABIT_RATE:
        return HABITS[task.family]
    return "invent_tool" if rng.random() < SLIP_RATE else ""


def log_record(task: Task, user: str, session: str, time: datetime, rng: random.Random) -> dict[str, Any]:
    """The log record of the deployed agent's episode of a task, as JSON types."""
    environment, episode = RefundDeskEnvironment(), f"{rng.getrandbits(48):012x}"
    messages = play_calls(environment, task, faulty_calls(task, _choose_fault(task, rng)))
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
        record["reward"] = RefundDeskVerifier().verify(task, environment.snapshot())[0]
    record["environment"] = {"kind": task.environment, "initial_state": task.initial_state, "goal": task.goal}
    return record
