"""Episodes of the order desk that come close to solving a task, for the audit of its verifier."""

from __future__ import annotations

from tracewheel.core.types import Task
from tracewheel.environments.order_desk.agent import DONE, Call, change, fitting, solution, start, through_busy
from tracewheel.environments.order_desk.noise import BUSY, FIRST_CHOICE
from tracewheel.environments.order_desk.tasks import REFUND, Order, wanted


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Calls that almost solve the task, by what is wrong with them."""
    changes = wanted(task.initial_state, task.goal)
    right = [change(task, number, action) for number, action in changes.items()]
    others = [order for order in task.initial_state["orders"] if order["id"] not in changes]

    def tried(*calls: Call) -> list[Call]:
        return through_busy(task, [*start(task), *calls, DONE])

    def deed(order: Order) -> Call:
        return change(task, order["id"], fitting(order))

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
    if FIRST_CHOICE in task.initial_state:
        found["kept_first_choice"] = tried(start(task)[-1])
    solved, busy = solution(task), min(task.initial_state.get(BUSY, ()), default=0)
    if 0 < busy < len(solved):
        found["gave_up_when_busy"] = [*solved[:busy], DONE]
    return found
