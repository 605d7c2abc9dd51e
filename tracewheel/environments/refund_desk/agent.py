"""The scripted agent of the refund desk: the known solution of a task. It is never shown to a policy in training."""

from __future__ import annotations

from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.base import TEXT_TURN
from tracewheel.environments.refund_desk.policy import CANCEL, EXCHANGE, REFUND, REFUSED, Order, final_wish, in_time, payee
from tracewheel.environments.refund_desk.talk import LOST, SAID

Call = tuple[str, dict[str, Any]]
ASK_ORDER, ASK_NAME, ASK_USED, ASK_INSTEAD = "Which order?", "Your name?", "Was it used?", "What would you like instead?"


def solution(task: Task) -> list[Call]:
    """What solves a task: questions (`TEXT_TURN`) and calls, one a turn."""
    return [*lookup(task), *inquiry(task), *act(task), close(task.goal["outcome"])]


def say(text: str) -> Call:
    return TEXT_TURN, {"text": text}


def close(outcome: str) -> Call:
    return "close", {"outcome": outcome}


def lookup(task: Task) -> list[Call]:
    """Find the order: its number is said, asked for, or found by the customer's name."""
    user, order = task.initial_state["user"], task.goal["order"]["id"]
    find = ("find_order", {"order": order})
    if user["number"] == LOST:
        return [say(ASK_NAME), ("orders", {"customer": user["customer"]}), find]
    return [find] if user["number"] == SAID else [say(ASK_ORDER), find]


def inquiry(task: Task) -> list[Call]:
    """Ask what only the customer knows, as far as it matters: nothing about an order that is too old."""
    state, wish = task.initial_state, final_wish(task.initial_state)
    if wish.action == CANCEL or not in_time(wish.action, order_of(task)):
        return []
    questions = [say(ASK_USED)]
    named = state["user"]["change"]  # who changes its mind says for what
    if wish.action == EXCHANGE and task.goal["outcome"] != REFUSED and not named:
        questions.append(say(ASK_INSTEAD))
    return questions


def act(task: Task) -> list[Call]:
    """The call that changes the order, if the policy allows it."""
    return [] if task.goal["outcome"] == REFUSED else [deed(task)]


def deed(task: Task) -> Call:
    """The call that does what the customer wants, allowed or not."""
    wish = final_wish(task.initial_state)
    match wish.action:
        case "refund":
            return REFUND, {"order": wish.order, "to": payee(order_of(task))}
        case "exchange":
            return EXCHANGE, {"order": wish.order, "item": wish.instead}
    return CANCEL, {"order": wish.order}


def order_of(task: Task) -> Order:
    """The order that the customer means, as it is at the start."""
    number = final_wish(task.initial_state).order
    return next(order for order in task.initial_state["orders"] if order["id"] == number)
