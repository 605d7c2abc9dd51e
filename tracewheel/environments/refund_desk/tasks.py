"""Tasks of the refund desk: four families, tiers by what the customer leaves unsaid.

| family | the request |
|---|---|
| `refund` | money back for an item that was paid by card |
| `gift` | the same, paid by gift card: the refund is a voucher |
| `exchange` | another item, which the customer names when asked |
| `cancel` | an order that should not be sent any more |

Tier 1 says the order number at once, tier 2 when asked, tier 3 has lost it and knows only a name, and in tier 4 the customer
changes its mind. In each family some requests must be refused: too late, used, or delivered already.
"""

from __future__ import annotations

import random
from typing import Any

from tracewheel.core.types import Task, content_hash
from tracewheel.environments.refund_desk.policy import (
    CANCEL,
    CARD,
    DELIVERED,
    EXCHANGE,
    EXCHANGE_DAYS,
    GIFT,
    OPEN,
    REFUND,
    REFUND_DAYS,
    Order,
    final_wish,
    ruling,
)
from tracewheel.environments.refund_desk.stock import CUSTOMERS, ITEMS, LONGEST_AGO, ORDER_IDS
from tracewheel.environments.refund_desk.talk import ASKED, LOST, SAID, opening, random_style

FAMILIES = ("refund", "gift", "exchange", "cancel")
TIERS = (1, 2, 3, 4)
NUMBER = {1: SAID, 2: ASKED, 3: LOST, 4: ASKED}
# A third of the requests of each family must be refused, so that to refuse them all is right no more often than that.
LATE_SHARE, USED_SHARE, SENT_SHARE = 0.12, 0.24, 0.33


def make_task(family: str, tier: int, rng: random.Random) -> Task:
    """A random task of a family and tier: the customer's order, one or two more of them, and a stranger's."""
    customer, stranger = rng.sample(CUSTOMERS, 2)
    count = rng.randint(3, 4)
    items, ids = rng.sample(ITEMS, count + 1), rng.sample(ORDER_IDS, count)
    wish = family if family in (EXCHANGE, CANCEL) else REFUND
    change = _change(wish, items[1], items[-1]) if tier == max(TIERS) else None
    final = (change or {}).get("wish", wish)
    about = 1 if change and "item" in change else 0
    orders = [_order(ids[n], customer if n < count - 1 else stranger, items[n], rng) for n in range(count)]
    orders[about] |= _suited(family, final, rng)
    rng.shuffle(orders)
    user = {
        "customer": customer,
        "wish": wish,
        "item": items[0],
        "number": NUMBER[tier],
        "used": final != CANCEL and rng.random() < USED_SHARE,
        "instead": items[-1] if wish == EXCHANGE else None,
        "change": change,
        "style": random_style(rng),
    }
    state = {"orders": orders, "user": user}
    return refund_desk_task(opening(state), state)


def refund_desk_task(prompt: str, initial_state: dict[str, Any]) -> Task:
    """Make a task from its prompt and state; goal, family, tier and fingerprint follow from them.

    The fingerprint ignores the customer's words: the same wish on the same orders is the same task.
    """
    ruled, wish = ruling(initial_state), final_wish(initial_state)
    goal = {"outcome": ruled.outcome, "action": wish.action, "order": ruled.order}
    user = {key: value for key, value in initial_state["user"].items() if key != "style"}
    fingerprint = content_hash({"orders": initial_state["orders"], "user": user})
    return Task(
        id=f"refund-desk-{content_hash({'prompt': prompt, 'state': initial_state})}",
        environment="refund_desk",
        family=_family(initial_state),
        tier=_tier(initial_state),
        prompt=prompt,
        initial_state=initial_state,
        goal=goal,
        verifier="refund_desk",
        fingerprint=fingerprint,
    )


def _family(state: dict[str, Any]) -> str:
    wish = str(state["user"]["wish"])
    about = next(order for order in state["orders"] if order["id"] == final_wish(state).order)
    return "gift" if wish == REFUND and about["paid"] == GIFT else wish


def _tier(state: dict[str, Any]) -> int:
    if state["user"]["change"]:
        return max(TIERS)
    return {number: tier for tier, number in NUMBER.items() if tier < max(TIERS)}[state["user"]["number"]]


def _order(number: str, customer: str, item: str, rng: random.Random) -> Order:
    return {
        "id": number,
        "customer": customer,
        "item": item,
        "days": rng.randint(1, LONGEST_AGO),
        "paid": rng.choice((CARD, GIFT)),
        "status": rng.choice((OPEN, DELIVERED)),
    }


def _suited(family: str, action: str, rng: random.Random) -> Order:
    """What makes an order one of the family, in time or not."""
    paid = {"refund": CARD, "gift": GIFT}.get(family) or rng.choice((CARD, GIFT))
    if action == CANCEL:
        return {"paid": paid, "status": DELIVERED if rng.random() < SENT_SHARE else OPEN}
    limit = REFUND_DAYS if action == REFUND else EXCHANGE_DAYS
    late = rng.random() < LATE_SHARE
    return {"paid": paid, "status": DELIVERED, "days": rng.randint(limit + 1, LONGEST_AGO) if late else rng.randint(1, limit)}


def _change(wish: str, other: str, instead: str) -> dict[str, Any]:
    """How a customer changes its mind: money or an item after all, or another order."""
    match wish:
        case "refund":
            return {"wish": EXCHANGE, "instead": instead}
        case "exchange":
            return {"wish": REFUND}
    return {"item": other}
