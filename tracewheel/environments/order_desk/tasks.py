"""Tasks of the order desk: four families, tiers by the number of the customer's orders.

| family | the request | what solves it |
|---|---|---|
| `item` | refund one item | its refund, in full |
| `status` | one item is not wanted any more | cancel it while it is open, refund it once it has shipped |
| `dearest` | the customer's dearest order | the cancellation, or refund, of the order of the highest amount |
| `open` | cancel all open orders | the cancellation of each open order, and of no other |

Orders are a list, not a mapping: a log may sort the keys of a mapping, and the desk would then list them in another order.
"""

from __future__ import annotations

import math
import random
from typing import Any

from tracewheel.core.types import Task, content_hash
from tracewheel.environments.order_desk.stock import PARAPHRASING, customers_of, items_of

FAMILIES = ("item", "status", "dearest", "open")
OPEN, SHIPPED, CANCELLED, REFUNDED = "open", "shipped", "cancelled", "refunded"
CANCEL, REFUND = "cancel", "refund"
LETTERS, DIGITS = "ABCDEFGHJKLMNPQRSTUVWXYZ", "23456789"
AMOUNTS = (5, 999)  # the least and the most
CANCELLED_AT_ONCE = (1, 2, 2)  # open orders in family `open`, if the customer has one more
PARAPHRASED_SHARE = 0.5

PROMPTS = {
    "item": (
        "Refund the {item} of {customer}.",
        "{customer} sent the {item} back. Refund it.",
        "Please pay {customer} back for the {item}.",
        "Give {customer} a refund for the {item}.",
        "A refund is due to {customer} for the {item}.",
        "The {item} of {customer} was broken. Refund it.",
        "{customer} asks for a refund of the {item}.",
        "Pay back what {customer} paid for the {item}.",
    ),
    "status": (
        "{customer} does not want the {item} any more.",
        "Take back the {item} of {customer}.",
        "{customer} has changed plans and no longer needs the {item}.",
        "{customer} has no use for the {item} now.",
        "Call off the {item} that {customer} bought.",
        "The {item} was a mistake, says {customer}.",
        "{customer} wants out of buying the {item}.",
        "{customer} found the {item} cheaper elsewhere and drops it.",
    ),
    "dearest": (
        "{action} the dearest order of {customer}.",
        "{action} the most expensive order of {customer}.",
        "{customer} asks: {action} what cost me the most.",
        "{customer} wants to {action} the order with the biggest amount.",
        "{action} the order of {customer} that has the largest amount.",
        "{action} the priciest order of {customer}.",
        "Please {action} the one order of {customer} that costs more than the others.",
        "For {customer}, {action} the order of the greatest value.",
    ),
    "open": (
        "Cancel all open orders of {customer}.",
        "{customer} wants every open order cancelled.",
        "Cancel whatever is still open for {customer}.",
        "Cancel each order of {customer} that is open.",
        "{customer} wants to cancel everything that is open.",
        "Please cancel every open order of {customer}.",
        "No open order of {customer} is wanted. Cancel them.",
        "For {customer}, cancel the orders that are open.",
    ),
}

# Other words for the same, which only some desks use, in half of their requests: what is learnt at the others has to be
# understood there.
PARAPHRASES = {
    "item": (
        "{customer} should get the money for the {item} back.",
        "The {item} came back from {customer}, so return what was paid.",
        "Reimburse {customer} for the {item}.",
        "{customer} wants the price of the {item} returned.",
        "The {item} never reached {customer}, so hand back the money.",
        "{customer} is owed money for the {item}.",
    ),
    "status": (
        "{customer} would rather not keep the order of the {item}.",
        "Undo the {item} for {customer}.",
        "The {item} is no longer wanted by {customer}.",
        "{customer} regrets having chosen the {item}.",
        "{customer} ordered the {item} by accident.",
        "Please free {customer} of the {item}.",
    ),
    "dearest": (
        "Find what {customer} paid the most for and {action} it.",
        "{customer} wants you to {action} the order with the highest price.",
        "Of all orders of {customer}, {action} the costliest.",
        "{action} the top order of {customer} by price.",
        "{customer} spent too much on one thing, so {action} that one.",
        "{action} the purchase that weighs most on the bill of {customer}.",
    ),
    "open": (
        "{customer} wants none of the orders that have not shipped yet.",
        "Stop everything that is still open for {customer}.",
        "Whatever of {customer} has not gone out, cancel it.",
        "Drop all that {customer} is still waiting for.",
        "{customer} is moving abroad, so nothing more should be sent.",
        "Call back every parcel of {customer} that has yet to leave.",
    ),
}

Order = dict[str, Any]


def make_task(family: str, tier: int, desk: int, rng: random.Random) -> Task:
    """A random task of a family in which a customer of a desk has `tier` orders; another customer has one, too."""
    customer, other = rng.sample(customers_of(desk), 2)
    items = rng.sample(items_of(desk), tier + 1)
    ids = rng.sample([letter + digit for letter in LETTERS for digit in DIGITS], tier + 1)
    amounts = _amounts(tier + 1, rng)
    action = rng.choice((CANCEL, REFUND))
    statuses = _statuses(family, tier, action, rng)
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
    wordings = PARAPHRASES if desk >= PARAPHRASING and rng.random() < PARAPHRASED_SHARE else PROMPTS
    prompt = rng.choice(wordings[family]).format(customer=customer, item=goal.get("item"), action=action)
    return order_desk_task(prompt[0].upper() + prompt[1:], {"orders": orders}, goal)


def wanted(initial_state: dict[str, Any], goal: dict[str, Any]) -> dict[str, str]:
    """What the goal asks for: the order numbers to change, and whether to cancel or to refund each."""
    orders = [order for order in initial_state["orders"] if order["customer"] == goal["customer"]]
    match goal["family"]:
        case "item" | "status":
            chosen = [order for order in orders if order["item"] == goal["item"]]
        case "dearest":
            chosen = [max(orders, key=lambda order: order["amount"])]
        case "open":
            chosen = [order for order in orders if order["status"] == OPEN]
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


def _statuses(family: str, tier: int, action: str, rng: random.Random) -> list[str]:
    """The status of each of the customer's orders."""
    match family:
        case "dearest":
            return [OPEN if action == CANCEL else SHIPPED] * tier
        case "open":
            count = min(tier - 1, rng.choice(CANCELLED_AT_ONCE))
        case _:
            count = rng.randint(0, tier - 1)
    statuses = [OPEN] * count + [SHIPPED] * (tier - count)
    rng.shuffle(statuses)
    return statuses
