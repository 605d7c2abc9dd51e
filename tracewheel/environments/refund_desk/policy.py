"""The shop's policy: what an agent is told, and what it makes of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REFUND_DAYS, EXCHANGE_DAYS = 30, 60
OPEN, DELIVERED = "open", "delivered"
CARD, GIFT, VOUCHER = "card", "gift", "voucher"
REFUND, EXCHANGE, CANCEL = "refund", "exchange", "cancel"
REFUNDED, EXCHANGED, CANCELLED, REFUSED = "refunded", "exchanged", "cancelled", "refused"
OUTCOMES = (REFUNDED, EXCHANGED, CANCELLED, REFUSED)
DONE = {REFUND: REFUNDED, EXCHANGE: EXCHANGED, CANCEL: CANCELLED}

POLICY = (
    "You work at a refund desk. Help the customer by these rules and no others. "
    f"Refund what is delivered, at most {REFUND_DAYS} days old and not used: to the card, or as a voucher if a gift card paid. "
    f"Exchange what is delivered, at most {EXCHANGE_DAYS} days old and not used. "
    "Cancel what is still open. Refuse everything else. Ask the customer for what you do not know. "
    "Close the ticket with what you did."
)

Order = dict[str, Any]


@dataclass(frozen=True)
class Wish:
    """What the customer wants in the end: `action` with an order; `instead` is the item of an exchange."""

    action: str
    order: str
    instead: str | None = None


@dataclass(frozen=True)
class Ruling:
    """What the policy makes of a wish: the ticket's outcome, and the order as it should be then."""

    outcome: str
    order: Order


def final_wish(state: dict[str, Any]) -> Wish:
    """The customer's wish after a change of mind, if there is one."""
    user = state["user"]
    change = user["change"] or {}
    item = change.get("item", user["item"])
    own = [order for order in state["orders"] if order["customer"] == user["customer"] and order["item"] == item]
    return Wish(change.get("wish", user["wish"]), own[0]["id"], change.get("instead", user["instead"]))


def ruling(state: dict[str, Any]) -> Ruling:
    """What should come of a task's request."""
    wish = final_wish(state)
    order = next(order for order in state["orders"] if order["id"] == wish.order)
    if not allowed(wish.action, order, used=state["user"]["used"]):
        return Ruling(REFUSED, order)
    outcome = DONE[wish.action]
    match wish.action:
        case "refund":
            return Ruling(outcome, {**order, "status": outcome, "refunded_to": payee(order)})
        case "exchange":
            return Ruling(outcome, {**order, "status": outcome, "exchanged_for": wish.instead})
    return Ruling(outcome, {**order, "status": outcome})


def allowed(action: str, order: Order, *, used: bool) -> bool:
    """Whether the policy allows an action."""
    if action == CANCEL:
        return bool(order["status"] == OPEN)
    return in_time(action, order) and not used


def in_time(action: str, order: Order) -> bool:
    """Whether a delivered order is young enough for a refund or an exchange."""
    return bool(order["status"] == DELIVERED and order["days"] <= (REFUND_DAYS if action == REFUND else EXCHANGE_DAYS))


def payee(order: Order) -> str:
    """Where a refund goes."""
    return VOUCHER if order["paid"] == GIFT else CARD
