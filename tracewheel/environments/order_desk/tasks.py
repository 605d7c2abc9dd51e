"""Tasks of the order desk: four families, tiers by the number of the customer's orders.

| family | the request | what solves it |
|---|---|---|
| `item` | refund one item | its refund, in full |
| `status` | one item is not wanted any more | cancel it while it is open, refund it once it has shipped |
| `shipped` | refund all that has shipped | the refund, in full, of each shipped order, and of no other |
| `open` | cancel all open orders | the cancellation of each open order, and of no other |

Orders are a list, not a mapping: a log may sort the keys of a mapping, and the desk would then list them in another order.
"""

from __future__ import annotations

import math
import random
from typing import Any

from tracewheel.core.types import Task, content_hash
from tracewheel.environments.order_desk.stock import UNSEEN, customers_of, items_of
from tracewheel.environments.order_desk.wording import PARAPHRASES, REQUESTS, request

FAMILIES = ("item", "status", "shipped", "open")
OPEN, SHIPPED, CANCELLED, REFUNDED = "open", "shipped", "cancelled", "refunded"
CANCEL, REFUND = "cancel", "refund"
LETTERS, DIGITS = "ABCDEFGHJKLMNPQRSTUVWXYZ", "23456789"
AMOUNTS = (5, 999)  # the least and the most
CHANGED_AT_ONCE = (1, 2, 2)  # orders to change in families `open` and `shipped`, if the customer has one more
PARAPHRASED_SHARE = 0.5

Order = dict[str, Any]


def make_task(family: str, tier: int, desk: int, rng: random.Random) -> Task:
    """A random task of a family in which a customer of a desk has `tier` orders; another customer has one, too."""
    customer, other = rng.sample(customers_of(desk), 2)
    items = rng.sample(items_of(desk), tier + 1)
    ids = rng.sample([letter + digit for letter in LETTERS for digit in DIGITS], tier + 1)
    amounts = _amounts(tier + 1, rng)
    statuses = _statuses(family, tier, rng)
    orders = [
        {"id": number, "customer": customer, "item": item, "amount": amount, "status": status}
        for number, item, amount, status in zip(ids, items, amounts, statuses, strict=False)
    ]
    strange = {
        "id": ids[-1],
        "customer": other,
        "item": items[-1],
        "amount": amounts[-1],
        "status": rng.choice((OPEN, SHIPPED)),
    }
    orders.insert(rng.randint(0, tier), strange)
    goal: dict[str, Any] = {"family": family, "customer": customer}
    if family in ("item", "status"):
        own = [order for order in orders if order["customer"] == customer]
        goal["item"] = rng.choice([order["item"] for order in own if family == "status" or order["status"] == SHIPPED])
    paraphrased = desk >= UNSEEN and rng.random() < PARAPHRASED_SHARE
    prompt = request((PARAPHRASES if paraphrased else REQUESTS)[family], customer, goal.get("item"), rng)
    return order_desk_task(prompt, {"orders": orders}, goal)


def wanted(initial_state: dict[str, Any], goal: dict[str, Any]) -> dict[str, str]:
    """What the goal asks for: the order numbers to change, and whether to cancel or to refund each."""
    orders = [order for order in initial_state["orders"] if order["customer"] == goal["customer"]]
    match goal["family"]:
        case "item" | "status":
            chosen = [order for order in orders if order["item"] == goal["item"]]
        case "open" | "shipped" as status:
            chosen = [order for order in orders if order["status"] == status]
        case _:
            raise ValueError(f"no family {goal['family']!r}")
    return {order["id"]: CANCEL if order["status"] == OPEN else REFUND for order in chosen}


def order_desk_task(prompt: str, initial_state: dict[str, Any], goal: dict[str, Any]) -> Task:
    """Make a task from its parts; tier and fingerprint follow from them.

    The fingerprint ignores the wording: the same goal on the same orders is the same task.
    """
    fingerprint = content_hash({"state": initial_state, "goal": goal})
    return Task(
        id=f"order-desk-{content_hash({'prompt': prompt, 'fingerprint': fingerprint})}",
        environment="order_desk",
        family=goal["family"],
        tier=sum(order["customer"] == goal["customer"] for order in initial_state["orders"]),
        prompt=prompt,
        initial_state=initial_state,
        goal=goal,
        verifier="order_desk",
        fingerprint=fingerprint,
    )


def _amounts(n: int, rng: random.Random) -> list[int]:
    """Different amounts, spread evenly over orders of magnitude, as prices are."""
    least, most = map(math.log, AMOUNTS)
    found: list[int] = []
    while len(found) < n:
        amount = round(math.exp(rng.uniform(least, most)))
        if amount not in found:
            found.append(amount)
    return found


def _statuses(family: str, tier: int, rng: random.Random) -> list[str]:
    """The status of each of the customer's orders."""
    if family in ("open", "shipped"):
        count, asked = min(tier - 1, rng.choice(CHANGED_AT_ONCE)), family
    else:
        count, asked = rng.randint(0, tier - 1), OPEN
    statuses = [asked] * count + [SHIPPED if asked == OPEN else OPEN] * (tier - count)
    rng.shuffle(statuses)
    return statuses
