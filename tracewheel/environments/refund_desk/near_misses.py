"""Episodes of the refund desk that come close to solving a task, for the audit of its verifier."""

from __future__ import annotations

from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.refund_desk.agent import Call, act, close, deed, inquiry, lookup
from tracewheel.environments.refund_desk.policy import CARD, EXCHANGE, OUTCOMES, REFUND, REFUSED, VOUCHER
from tracewheel.environments.refund_desk.stock import ITEMS


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Questions and calls that almost solve the task, by what is wrong with them."""
    outcome, number = task.goal["outcome"], task.goal["order"]["id"]
    talk, done = [*lookup(task), *inquiry(task)], act(task)
    found = {
        "left_open": [*talk, *done],
        "told_wrongly": [*talk, *done, close(next(other for other in OUTCOMES if other != outcome))],
        "closed_too_early": [*talk, close(outcome), *done] if done else [*talk, deed(task), close(outcome)],
    }
    for order in task.initial_state["orders"]:
        if order["id"] == number:
            continue
        whose = "own" if order["customer"] == task.initial_state["user"]["customer"] else "another_customers"
        found[f"extra_change_{whose}"] = [*talk, *done, ("cancel", {"order": order["id"]}), close(outcome)]
        if done:
            found[f"wrong_place_{whose}"] = [*talk, _with(deed(task), order=order["id"]), close(outcome)]
    if outcome == REFUSED:
        return found | {"done_though_forbidden": [*talk, deed(task), close(outcome)]}
    found["refused_though_allowed"] = [*talk, close(REFUSED)]
    found["told_not_done"] = [*talk, close(outcome)]
    found["wrong_type"] = [*talk, _with(deed(task), order=[number]), close(outcome)]
    if deed(task)[0] == REFUND:
        other = CARD if deed(task)[1]["to"] == VOUCHER else VOUCHER
        found["wrong_way"] = [*talk, _with(deed(task), to=other), close(outcome)]
    if deed(task)[0] == EXCHANGE:
        item = next(item for item in ITEMS if item != deed(task)[1]["item"])
        found["wrong_item"] = [*talk, _with(deed(task), item=item), close(outcome)]
    return found


def _with(call: Call, **args: Any) -> Call:
    return call[0], call[1] | args
