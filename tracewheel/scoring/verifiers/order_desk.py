"""The order desk's verifier: what was asked for is cancelled or refunded, and nothing else is touched."""

from __future__ import annotations

from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.order_desk.tasks import CANCEL, CANCELLED, REFUNDED, Order, wanted


class OrderDeskVerifier:
    """Binary reward from the final orders.

    >>> from tracewheel.environments.order_desk.tasks import order_desk_task
    >>> order = {"id": "K7", "customer": "Mia Kent", "item": "kettle", "amount": 24, "status": "open"}
    >>> goal = {"family": "open", "customer": "Mia Kent"}
    >>> task = order_desk_task("Cancel all open orders of Mia Kent.", {"orders": [order]}, goal)
    >>> OrderDeskVerifier().verify(task, {"orders": [{**order, "status": "cancelled"}]})
    (1.0, {'asked': 1.0, 'untouched': 1.0})

    The breakdown has two parts, each 0 or 1, and the total is 1 only when both are:

    - `asked`: every order that was asked for is cancelled, or refunded in full.
    - `untouched`: every other order is as it was, and there are no new ones.

    The calls of the episode, `done` included, do not matter.

    Raises:
        KeyError: the state has no orders, or the goal lacks a part.
    """

    kind = "order_desk"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        fulfilled, untouched = _compare(task, final_state)
        breakdown = {"asked": float(all(fulfilled)), "untouched": float(untouched)}
        return float(all(breakdown.values())), breakdown

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """The share of the orders asked for that are done, or 0 once any other order is changed."""
        fulfilled, untouched = _compare(task, state)
        return untouched * sum(fulfilled) / len(fulfilled)


def _compare(task: Task, state: dict[str, Any]) -> tuple[list[bool], bool]:
    """Whether each order that was asked for is done, and whether all others are as they were."""
    changes = wanted(task.initial_state, task.goal)
    before = {order["id"]: order for order in task.initial_state["orders"]}
    after = {order["id"]: order for order in state["orders"]}
    fulfilled = [after.get(number) == _changed(before[number], action) for number, action in changes.items()]
    rest_before = {number: order for number, order in before.items() if number not in changes}
    rest_after = {number: order for number, order in after.items() if number not in changes}
    return fulfilled, rest_before == rest_after


def _changed(order: Order, action: str) -> Order:
    if action == CANCEL:
        return {**order, "status": CANCELLED}
    return {**order, "status": REFUNDED, "refunded": order["amount"]}
