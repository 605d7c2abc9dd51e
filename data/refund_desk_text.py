"""Generic text for the refund desk's tiny base policy: single skills, most of them by an explicit order.

The base learns to copy, to ask, to read an order, to judge it when it is told to judge, and to act when it is told to act. What
a customer's plain request calls for it sees in few complete episodes only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.base import play_calls
from tracewheel.environments.refund_desk import talk
from tracewheel.environments.refund_desk.environment import (
    ASK_INSTEAD,
    ASK_NAME,
    ASK_ORDER,
    ASK_USED,
    TOOLS,
    Call,
    RefundDeskEnvironment,
    close,
    deed,
    lookup,
    order_of,
    say,
    solution,
)
from tracewheel.environments.refund_desk.policy import (
    CANCEL,
    DONE,
    EXCHANGE,
    OPEN,
    OUTCOMES,
    POLICY,
    REFUND,
    final_wish,
    in_time,
)
from tracewheel.environments.refund_desk.stock import CUSTOMERS, ITEMS, LONGEST_AGO, ORDER_IDS
from tracewheel.environments.refund_desk.tasks import FAMILIES, make_task
from tracewheel.environments.users.scripted import GOODBYE, NUDGES
from tracewheel_projects import World, chat_pieces, fixed_text

Conversation = list[dict[str, Any]]
YES, NO, NOTED = "yes", "no", "noted"
WORDS = {
    "repeat": "Repeat: {words}",
    "pick": "Which is the {item}?\n{listing}",
    "look_up": "Look up {order}.",
    "look_mine": "Look up my {item}.",
    "in_time": "Is {order} in time for {action}?",
    "was_used": "Find out whether {order} was used.",
    "order_to": "Do it: {action} {order}.",
    "by_rules": "By the rules: {action} {order}.",
    "order_said": "Do it: ",
    "rules_said": "By the rules: ",
}
INVENTED = ("get_policy",)
LONGEST_LIST = 5


def complete(rng: random.Random, families: tuple[str, ...]) -> Conversation:
    """A complete episode of one of the families, of tier 1 or 2."""
    task = make_task(rng.choice(families), rng.randint(1, 2), rng)
    return play_calls(RefundDeskEnvironment(), task, solution(task))


def pieces() -> set[str]:
    """The strings of the refund desk that are one token each."""
    wordings = [*sum(talk.OPENINGS.values(), ()), talk.NUMBER, talk.NO_NUMBER, *talk.CHANGES.values(), *talk.ORDER_SAID]
    wordings += [*talk.NAME_SAID, *talk.INSTEAD_SAID, *WORDS.values()]
    said = {*talk.USED, *talk.UNUSED, *talk.ORDER_LOST, *NUDGES, GOODBYE, ASK_ORDER, ASK_NAME, ASK_USED, ASK_INSTEAD}
    said |= {YES, NO, NOTED, REFUND, EXCHANGE, CANCEL, *OUTCOMES, OPEN, "delivered", "card", "gift", "voucher"}
    said |= {f", {days} days, " for days in range(1, LONGEST_AGO + 1)}
    said |= {
        "ok",
        "closed",
        ", ",
        " ",
        "\n",
        ".",
        "error: ",
        "error: no order ",
        "error: no orders of ",
        "error: no tool named ",
    }
    return said | {*ITEMS, *CUSTOMERS, *ORDER_IDS, *fixed_text(wordings), *chat_pieces(POLICY, TOOLS, INVENTED, "order")}


def _answer(question: str, reply: str) -> Conversation:
    return [
        {"role": "system", "content": POLICY},
        {"role": "user", "content": question},
        {"role": "assistant", "content": reply},
    ]


def _some_task(rng: random.Random, *tiers: int) -> Task:
    return make_task(rng.choice(FAMILIES), rng.choice(tiers), rng)


def _played(task: Task, prompt: str, calls: list[Call], reply: str = "") -> Conversation:
    """The calls under another prompt, and a last reply of the agent if there is one."""
    messages = play_calls(RefundDeskEnvironment(), replace(task, prompt=prompt), calls)
    return [*messages, {"role": "assistant", "content": reply}] if reply else messages


def _repeat(rng: random.Random) -> Conversation:
    words = rng.sample([*ITEMS, *CUSTOMERS, *ORDER_IDS], rng.randint(1, LONGEST_LIST))
    separator = rng.choice((", ", "\n"))
    return _answer(WORDS["repeat"].format(words=separator.join(words)), separator.join(words))


def _pick(rng: random.Random) -> Conversation:
    count = rng.randint(2, LONGEST_LIST)
    pairs = list(zip(rng.sample(ORDER_IDS, count), rng.sample(ITEMS, count), strict=True))
    order, item = rng.choice(pairs)
    return _answer(WORDS["pick"].format(item=item, listing="\n".join(f"{one} {what}" for one, what in pairs)), order)


def _look_up(rng: random.Random) -> Conversation:
    task = _some_task(rng, 1)
    order = rng.choice(task.initial_state["orders"])["id"]
    return _played(task, WORDS["look_up"].format(order=order), [("find_order", {"order": order})], NOTED)


def _look_mine(rng: random.Random) -> Conversation:
    task = _some_task(rng, 1, 2, 2, 3, 3)
    user, order = task.initial_state["user"], order_of(task)
    number = {talk.SAID: talk.NUMBER, talk.ASKED: "", talk.LOST: talk.NO_NUMBER}[user["number"]].format(order=order["id"])
    return _played(task, WORDS["look_mine"].format(item=user["item"]) + number, lookup(task), NOTED)


def _in_time(rng: random.Random) -> Conversation:
    task, action = _some_task(rng, 1), rng.choice((REFUND, EXCHANGE, CANCEL))
    order = rng.choice(task.initial_state["orders"])
    fits = order["status"] == OPEN if action == CANCEL else in_time(action, order)
    prompt = WORDS["in_time"].format(order=order["id"], action=action)
    return _played(task, prompt, [("find_order", {"order": order["id"]})], YES if fits else NO)


def _was_used(rng: random.Random) -> Conversation:
    task = _some_task(rng, 1)
    prompt = WORDS["was_used"].format(order=order_of(task)["id"])
    return _played(task, prompt, [say(ASK_USED)], YES if task.initial_state["user"]["used"] else NO)


def _order_to(rng: random.Random) -> Conversation:
    """What the customer wants, allowed or not."""
    task = _some_task(rng, 1)
    wish = final_wish(task.initial_state)
    return _done(task, WORDS["order_to"].format(order=wish.order, action=wish.action))


def _order_said(rng: random.Random) -> Conversation:
    """As `_order_to`, in the customer's words."""
    task = _some_task(rng, 1)
    return _done(task, WORDS["order_said"] + task.prompt)


def _done(task: Task, prompt: str) -> Conversation:
    wish = final_wish(task.initial_state)
    calls: list[Call] = [("find_order", {"order": wish.order})]
    calls += [say(ASK_INSTEAD)] if wish.action == EXCHANGE else []
    return _played(task, prompt, [*calls, deed(task), close(DONE[wish.action])])


def _by_rules(rng: random.Random) -> Conversation:
    """What the policy makes of a wish, in other words than a customer's."""
    task = _some_task(rng, 1)
    wish = final_wish(task.initial_state)
    return _played(task, WORDS["by_rules"].format(order=wish.order, action=wish.action), solution(task))


def _rules_said(rng: random.Random) -> Conversation:
    """As `_by_rules`, in the customer's words."""
    task = _some_task(rng, 1, 2)
    return _played(task, WORDS["rules_said"] + task.prompt, solution(task))


SKILLS: dict[str, Callable[[random.Random], Conversation]] = {
    "repeat": _repeat,
    "pick": _pick,
    "look_up": _look_up,
    "look_mine": _look_mine,
    "in_time": _in_time,
    "was_used": _was_used,
    "order_to": _order_to,
    "by_rules": _by_rules,
    "order_said": _order_said,
    "rules_said": _rules_said,
}

WORLD = World(TOOLS, pieces, SKILLS, complete)
