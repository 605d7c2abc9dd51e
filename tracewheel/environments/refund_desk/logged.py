"""Checks the starting point of a logged episode of the refund desk."""

from __future__ import annotations

from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.environments.refund_desk.policy import CANCEL, CARD, DELIVERED, EXCHANGE, GIFT, OPEN, REFUND
from tracewheel.environments.refund_desk.stock import ITEMS
from tracewheel.environments.refund_desk.talk import ASKED, LOST, SAID

FIELDS = {"id": str, "customer": str, "item": str, "days": int, "paid": str, "status": str}
WISHES, NUMBERS = (REFUND, EXCHANGE, CANCEL), (SAID, ASKED, LOST)


def check_state(state: Any) -> None:
    """Check `initial_state`.

    Raises:
        DataError: it is incomplete or inconsistent; the message says how.
    """
    orders = state.get("orders") if isinstance(state, dict) else None
    if not isinstance(orders, list) or not orders or not all(_is_order(order) for order in orders):
        raise DataError(f"'initial_state.orders' needs a list of orders, each with {', '.join(FIELDS)}")
    if len({order["id"] for order in orders}) < len(orders):
        raise DataError("'initial_state.orders': two orders have one id")
    user = state.get("user")
    if not isinstance(user, dict):
        raise DataError("'initial_state.user' needs what the customer knows and wants")
    if user.get("wish") not in WISHES or user.get("number") not in NUMBERS:
        raise DataError(f"'initial_state.user' needs 'wish' ({', '.join(WISHES)}) and 'number' ({', '.join(NUMBERS)})")
    if not isinstance(user.get("used"), bool) or type(user.get("style")) is not int:
        raise DataError("'initial_state.user' needs 'used', true or false, and 'style', a whole number")
    if not {"instead", "change"} <= user.keys():
        raise DataError("'initial_state.user' needs 'instead' and 'change', null for none")
    own = [order["item"] for order in orders if order["customer"] == user.get("customer")]
    change = user["change"]
    if change is not None and not isinstance(change, dict):
        raise DataError("'initial_state.user.change' is null or an object")
    for place, item in (("item", user.get("item")), ("change.item", (change or {}).get("item", user.get("item")))):
        if own.count(item) != 1:
            raise DataError(f"'initial_state.user.{place}' needs an item of which the customer has one order")
    wish = (change or {}).get("wish", user["wish"])
    if wish not in WISHES:
        raise DataError(f"'initial_state.user.change.wish' is none of {', '.join(WISHES)}")
    if wish == EXCHANGE and (change or {}).get("instead", user["instead"]) not in ITEMS:
        raise DataError("'initial_state.user.instead' needs an item of the shop's for an exchange")


def _is_order(order: Any) -> bool:
    if not isinstance(order, dict) or not all(type(order.get(name)) is kind for name, kind in FIELDS.items()):
        return False
    return order["status"] in (OPEN, DELIVERED) and order["paid"] in (CARD, GIFT) and order["days"] > 0
