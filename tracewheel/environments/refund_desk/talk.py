"""What the customer says, and what it is told as a simulated user."""

from __future__ import annotations

import random
from typing import Any

from tracewheel.environments.refund_desk.policy import CANCEL, EXCHANGE, REFUND, final_wish
from tracewheel.environments.refund_desk.stock import ITEMS, ORDER_ID
from tracewheel.environments.users.base import Fact, UserBrief

# How much of the order number the customer says: in its first message, when asked, or never.
SAID, ASKED, LOST = "said", "asked", "lost"

OPENINGS = {
    REFUND: ("I want my money back for the {item}.", "Please refund the {item}."),
    EXCHANGE: ("I want to swap the {item}.", "I would like something else for the {item}."),
    CANCEL: ("I do not need the {item} any more.", "Please stop the order of the {item}."),
}
NUMBER = " It is order {order}."
NO_NUMBER = " I have lost the number."
CHANGES = {
    EXCHANGE: "No, wait: I would rather have the {instead} for it.",
    REFUND: "No, wait: I would rather have my money back.",
    CANCEL: "No, wait: I mean the {item}, {order}.",
}
USED = ("Yes, twice.", "Yes, a little.", "I have used it once.")
UNUSED = ("No, never.", "Not once.", "It is still in the box.")
ORDER_SAID = ("{order}.", "The number is {order}.")
ORDER_LOST = ("I do not have the number.",)
NAME_SAID = ("{name}.", "I am {name}.")
INSTEAD_SAID = ("The {instead}.", "Give me the {instead}.")

QUESTIONS = {
    "order": r"order number|\bnumber\?|\border\b[^.!]*\?",
    "name": r"\bname\b|who are you",
    "used": r"\b(?:un)?used?\b|\bopened\b|\bcondition\b|\bworn\b",
    "instead": r"\binstead\b|\bwhat item\b|\bwhich item\b|\bwhat would you like\b|\bfor what\b",
}
SAYS_USED = r"\bI(?: have|'ve)? used\b|\byes, (?:twice|once|a little)\b|\bit (?:was|is|has been) used\b"
SAYS_UNUSED = r"\b(?:never|not|n't)(?: been)? used\b|\bunused\b|\bstill in the box\b|\bno, never\b|\bnot once\b"


def opening(state: dict[str, Any]) -> str:
    """The customer's first message."""
    user = state["user"]
    number = {SAID: NUMBER, ASKED: "", LOST: NO_NUMBER}[user["number"]]
    wordings = OPENINGS[user["wish"]]
    text = wordings[user["style"] % len(wordings)] + number
    return text.format(item=user["item"], order=_order_of(state, user["item"]))


def brief_of(state: dict[str, Any], prompt: str) -> UserBrief:
    """What the simulated user of a task is told."""
    user, wish = state["user"], final_wish(state)
    first = _order_of(state, user["item"])
    change = user["change"]
    lost = user["number"] == LOST
    facts = [_order_fact(None if lost else first)]
    if wish.order != first:
        facts.append(_order_fact(wish.order))
    facts.append(Fact("name", user["customer"], QUESTIONS["name"], _worded(NAME_SAID, name=user["customer"])))
    if user["used"]:
        facts.append(Fact("used", "used", QUESTIONS["used"], USED, SAYS_UNUSED))
    else:
        facts.append(Fact("used", "not used", QUESTIONS["used"], UNUSED, SAYS_USED))
    instead = wish.instead or user["instead"]
    if instead:
        facts.append(Fact("instead", instead, QUESTIONS["instead"], _worded(INSTEAD_SAID, instead=instead)))
    items = {user["item"], *(change or {}).values()} & set(ITEMS)
    changed = CHANGES[wish.action].format(instead=instead, item=(change or {}).get("item"), order=wish.order) if change else ""
    return UserBrief(
        instruction=_instruction(state, facts, changed),
        prompt=prompt,
        facts=tuple(facts),
        allowed=frozenset(items),
        unknown=frozenset(order["id"] for order in state["orders"]),
        values=rf"{ORDER_ID}|\b(?:{'|'.join(ITEMS)})\b",
        change=changed,
        seed=user["style"],
    )


def _instruction(state: dict[str, Any], facts: list[Fact], changed: str) -> str:
    user = state["user"]
    wants = {
        REFUND: f"You want your money back for the {user['item']}.",
        EXCHANGE: f"You want another item for the {user['item']}.",
        CANCEL: f"You do not want the {user['item']} any more: the order should be cancelled.",
    }[user["wish"]]
    known = {"order": "Order number", "name": "Your name", "used": f"The {user['item']}", "instead": "What you want instead"}
    lines = [f"- {known[fact.name]}: {fact.value}" for fact in {fact.name: fact for fact in reversed(facts)}.values()]
    mind = f'\nWith your first answer you change your mind. Add: "{changed}"' if changed else ""
    return f"You are a customer of a shop and write to its refund desk. {wants} You know:\n" + "\n".join(lines) + mind


def _order_fact(order: str | None) -> Fact:
    if order is None:
        return Fact("order", "lost", QUESTIONS["order"], ORDER_LOST)
    return Fact("order", order, QUESTIONS["order"], _worded(ORDER_SAID, order=order))


def _worded(wordings: tuple[str, ...], **values: str) -> tuple[str, ...]:
    return tuple(wording.format(**values) for wording in wordings)


def _order_of(state: dict[str, Any], item: str) -> str:
    customer = state["user"]["customer"]
    return next(str(order["id"]) for order in state["orders"] if order["customer"] == customer and order["item"] == item)


def random_style(rng: random.Random) -> int:
    """A number that chooses the customer's words."""
    return rng.randrange(1000)
