"""Episodes of the order desk that come close to solving a task, for the audit of its verifier."""

from __future__ import annotations

from tracewheel.core.types import Task
from tracewheel.environments.order_desk.agent import Call, change, look
from tracewheel.environments.order_desk.tasks import CANCEL, OPEN, REFUND, Order, wanted

DONE: Call = ("done", {})


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Calls that almost solve the task, by what is wrong with them."""
    changes = wanted(task.initial_state, task.goal)
    right = [change(task, number, action) for number, action in changes.items()]
    others = [order for order in task.initial_state["orders"] if order["id"] not in changes]

    def tried(*calls: Call) -> list[Call]:
        return [look(task), *calls, DONE]

    def deed(order: Order) -> Call:
        return change(task, order["id"], CANCEL if order["status"] == OPEN else REFUND)

    found = {"told_only": tried(), "half_done": tried(*right[:-1])}
    for order in others:
        whose = "own" if order["customer"] == task.goal["customer"] else "another_customers"
        found[f"extra_change_{whose}"] = tried(*right, deed(order))
        found[f"wrong_place_{whose}"] = tried(*right[:-1], deed(order))
    tool, args = right[-1]
    if tool == REFUND:
        found["wrong_type"] = tried(*right[:-1], (tool, args | {"amount": str(args["amount"])}))
        found["not_a_whole_number"] = tried(*right[:-1], (tool, args | {"amount": float(args["amount"])}))
        found["too_little"] = tried(*right[:-1], (tool, args | {"amount": args["amount"] - 1}))
        found["too_much"] = tried(*right[:-1], (tool, args | {"amount": args["amount"] + 1}))
    else:
        found["wrong_type"] = tried(*right[:-1], (tool, {"order": [args["order"]]}))
    found["wrong_case"] = tried(*right[:-1], (tool, args | {"order": args["order"].lower()}))
    return found
