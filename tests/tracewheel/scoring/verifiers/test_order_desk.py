"""The order desk's verifier, by cases: what was done, and what it scores."""

import pytest

from tracewheel.environments.order_desk.environment import OrderDeskEnvironment
from tracewheel.environments.order_desk.tasks import order_desk_task
from tracewheel.scoring.verifiers import make_verifier

ORDERS = [
    {"id": "K7", "customer": "Mia Kent", "item": "kettle", "amount": 24, "status": "open"},
    {"id": "B3", "customer": "Mia Kent", "item": "lamp", "amount": 61, "status": "shipped"},
    {"id": "C4", "customer": "Mia Kent", "item": "chair", "amount": 12, "status": "open"},
    {"id": "Q9", "customer": "Tom Cole", "item": "desk", "amount": 90, "status": "open"},
]
ITEM, STATUS = ({"family": family, "customer": "Mia Kent", "item": "lamp"} for family in ("item", "status"))
KETTLE = {"family": "status", "customer": "Mia Kent", "item": "kettle"}
SHIPPED, OPEN = ({"family": family, "customer": "Mia Kent"} for family in ("shipped", "open"))
REFUND, CANCEL_K7, CANCEL_C4 = ("refund", "B3", 61), ("cancel", "K7"), ("cancel", "C4")


def final_state(task, calls):
    environment = OrderDeskEnvironment()
    environment.reset(task)
    for tool, order, *amount in calls:
        environment.step(tool, {"order": order} | ({"amount": amount[0]} if amount else {}))
    return environment.snapshot()


@pytest.mark.parametrize(
    ("goal", "calls", "asked", "untouched", "progress"),
    [
        (ITEM, [REFUND], 1, 1, 1.0),
        (ITEM, [], 0, 1, 0.0),
        (ITEM, [("refund", "B3", 60)], 0, 1, 0.0),
        (ITEM, [REFUND, CANCEL_K7], 1, 0, 0.0),
        (STATUS, [("cancel", "B3"), REFUND], 1, 1, 1.0),
        (KETTLE, [CANCEL_K7], 1, 1, 1.0),
        (KETTLE, [("refund", "K7", 24)], 0, 1, 0.0),
        (SHIPPED, [REFUND], 1, 1, 1.0),
        (SHIPPED, [("cancel", "Q9")], 0, 0, 0.0),
        (OPEN, [CANCEL_K7], 0, 1, 0.5),
        (OPEN, [CANCEL_C4, CANCEL_K7], 1, 1, 1.0),
        (OPEN, [CANCEL_C4, CANCEL_K7, ("cancel", "Q9")], 1, 0, 0.0),
    ],
)
def test_cases(goal, calls, asked, untouched, progress):
    task = order_desk_task("x", {"orders": ORDERS}, goal)
    state, verifier = final_state(task, calls), make_verifier("order_desk")
    total, parts = verifier.verify(task, state)
    assert parts == {"asked": asked, "untouched": untouched}
    assert total == asked * untouched
    assert verifier.progress(task, state) == progress


def test_a_state_without_orders_cannot_be_judged():
    with pytest.raises(KeyError):
        make_verifier("order_desk").verify(order_desk_task("x", {"orders": ORDERS}, ITEM), {})
