"""The scripted agent of the order desk: the known solution of a task. It is never shown to a policy in training."""

from __future__ import annotations

from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.order_desk.tasks import CANCEL, wanted

Call = tuple[str, dict[str, Any]]


def solution(task: Task) -> list[Call]:
    """The calls that solve a task in the most direct way, one call a turn."""
    changes = wanted(task.initial_state, task.goal)
    return [look(task), *(change(task, number, action) for number, action in changes.items()), ("done", {})]


def look(task: Task) -> Call:
    return "orders", {"customer": task.goal["customer"]}


def change(task: Task, number: str, action: str) -> Call:
    """The call that cancels an order, or refunds it in full."""
    if action == CANCEL:
        return "cancel", {"order": number}
    amount = next(order["amount"] for order in task.initial_state["orders"] if order["id"] == number)
    return "refund", {"order": number, "amount": amount}
