"""The refund desk's verifier: the database holds the right change and no other, and the ticket says so."""

from __future__ import annotations

from typing import Any

from tracewheel.core.types import Task


class RefundDeskVerifier:
    """Binary reward from the final database.

    >>> import random
    >>> from tracewheel.environments.refund_desk.tasks import make_task
    >>> task = make_task("refund", 1, random.Random(0))
    >>> RefundDeskVerifier().verify(task, {"orders": task.initial_state["orders"], "ticket": "open"})
    (0.0, {'order': 0.0, 'untouched': 1.0, 'ticket': 0.0})

    The breakdown has three parts, each 0 or 1, and the total is 1 only when all are:

    - `order`: the order is as it should be: refunded the right way, exchanged for the right item, cancelled, or, where the
      policy forbids it, as it was.
    - `untouched`: every other order is as it was, and there are no new ones.
    - `ticket`: it was closed, as refused where the policy forbids the request and otherwise as what was done. So an agent
      that does nothing solves no task, not even one whose request must be refused.

    Raises:
        KeyError: the state has no orders or no ticket.
    """

    kind = "refund_desk"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        wanted = task.goal["order"]
        before = {order["id"]: order for order in task.initial_state["orders"]} | {wanted["id"]: wanted}
        after = {order["id"]: order for order in final_state["orders"]}
        others = {number: order for number, order in after.items() if number != wanted["id"]}
        breakdown = {
            "order": float(after.get(wanted["id"]) == wanted),
            "untouched": float(others == {number: order for number, order in before.items() if number != wanted["id"]}),
            "ticket": float(final_state["ticket"] == task.goal["outcome"]),
        }
        return float(all(breakdown.values())), breakdown
