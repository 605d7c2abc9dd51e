"""The scripted agent of the order desk: the known solution of a task. It is never shown to a policy in training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.order_desk.noise import BUSY, FIRST_CHOICE
from tracewheel.environments.order_desk.tasks import CANCEL, OPEN, REFUND, Order, wanted

Call = tuple[str, dict[str, Any]]
DONE: Call = ("done", {})


def solution(task: Task) -> list[Call]:
    """The calls that solve a task in the most direct way, one call a turn."""
    return through_busy(task, direct(task))


def direct(task: Task) -> list[Call]:
    """The solution at a desk that is never busy."""
    changes = wanted(task.initial_state, task.goal)
    return [*start(task), *(change(task, number, action) for number, action in changes.items()), DONE]


def start(task: Task) -> list[Call]:
    """The look at the orders, and the attempt that makes a customer with a second thought tell it."""
    if FIRST_CHOICE not in task.initial_state:
        return [look(task)]
    own = [order for order in task.initial_state["orders"] if order["customer"] == task.goal["customer"]]
    first = next(order for order in own if order["item"] == task.initial_state[FIRST_CHOICE])
    return [look(task), change(task, first["id"], fitting(first))]


def through_busy(task: Task, calls: Iterable[Call]) -> list[Call]:
    """The calls, each one that finds the desk busy made again until it does not."""
    busy, made = task.initial_state.get(BUSY, ()), list[Call]()
    for call in calls:
        while call != DONE and len(made) + 1 in busy:
            made.append(call)
        made.append(call)
    return made


def look(task: Task) -> Call:
    return "orders", {"customer": task.goal["customer"]}


def change(task: Task, number: str, action: str) -> Call:
    """The call that cancels an order, or refunds it in full."""
    if action == CANCEL:
        return "cancel", {"order": number}
    amount = next(order["amount"] for order in task.initial_state["orders"] if order["id"] == number)
    return "refund", {"order": number, "amount": amount}


def fitting(order: Order) -> str:
    """The action that an order takes."""
    return CANCEL if order["status"] == OPEN else REFUND
