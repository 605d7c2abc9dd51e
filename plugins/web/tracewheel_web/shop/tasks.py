"""Tasks in the shop: what to put into the cart, order, cancel or remove."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from tracewheel_web.shop.site import FIELDS, FIRST_ORDER, MOST
from tracewheel_web.shop.stock import COUNTRIES, Product, products

FAMILIES = ("fill_cart", "order", "cancel", "clear_cart")
TIERS = (1, 2, 3)
CATALOGUES = 1000
NAMES = ("Ada Moss", "Ben Holt", "Cleo Frank", "Dan Weir", "Eva Lind", "Finn Oak")
STREETS = ("Mill Lane", "Station Road", "Long Street", "Harbour Way", "Park Row")
CITIES = ("Alton", "Brimley", "Corby", "Dunmere", "Elsing")


class Made(NamedTuple):
    """A task: what is asked, the shop at first, the changes that are wanted, and what the scripted agent does."""

    prompt: str
    site: dict[str, Any]
    required: list[dict[str, Any]]
    plan: list[dict[str, Any]]


class Reached(NamedTuple):
    """What was done in an episode, as a task of its family that asks for that."""

    family: str
    tier: int
    made: Made


def make(family: str, tier: int, rng: random.Random) -> Made:
    """A random task of a family and tier."""
    catalogue = rng.randrange(CATALOGUES)
    stock = products(catalogue)
    site: dict[str, Any] = {"catalogue": catalogue, "cart": {}, "orders": _orders(stock, rng)}
    return {"fill_cart": _fill_cart, "order": _order, "cancel": _cancel, "clear_cart": _clear_cart}[family](
        tier, site, stock, rng
    )


def reached(before: dict[str, Any], after: dict[str, Any]) -> Reached | None:
    """The task that leads from one state of the shop to another; None where no family asks for all of it."""
    if before["catalogue"] != after["catalogue"] or not before["orders"].keys() <= after["orders"].keys():
        return None
    stock = {product.id: product for product in products(before["catalogue"])}
    changed = {number: order for number, order in after["orders"].items() if order != before["orders"].get(number)}
    inside, left = before["cart"], after["cart"]
    new = {product: count for product, count in left.items() if product not in inside}
    out = [product for product in inside if product not in left]
    if any(left[product] != inside[product] for product in inside if product in left):
        return None  # no family asks for another number of what is there
    if changed:
        (number, order), *more = changed.items()
        if more or new:
            return None
        if number in before["orders"]:
            return None if out else _cancelled(number, order, before)
        return _ordered(number, order, before, stock) if left == {} else None
    if not new and not out:
        return None
    plan = [{"do": "remove", "name": stock[product].name} for product in out]
    plan += [_add(stock[product], count) for product, count in new.items()]
    required: list[dict[str, Any]] = [{"path": f"/site/cart/{product}", "gone": True} for product in out]
    required += [{"path": f"/site/cart/{product}", "to": count} for product, count in new.items()]
    put = " and ".join(f"{count} of the {stock[product].name}" for product, count in new.items())
    if not out:
        return Reached("fill_cart", 1 if len(new) == 1 else 3, Made(f"Put {put} into the cart.", before, required, plan))
    prompt = _removal([stock[product] for product in out]) + (f" Then put {put} into it." if new else "")
    return Reached("clear_cart", 3 if new else min(len(out), 2), Made(prompt, before, required, plan))


def _cancelled(number: str, order: dict[str, Any], before: dict[str, Any]) -> Reached | None:
    if order != before["orders"][number] | {"status": "cancelled"}:
        return None
    required = [{"path": f"/site/orders/{number}/status", "to": "cancelled"}]
    return Reached("cancel", 1, Made(f"Cancel order {number}.", before, required, [{"do": "cancel", "number": number}]))


def _ordered(number: str, order: dict[str, Any], before: dict[str, Any], stock: dict[str, Product]) -> Reached | None:
    """An order of what was in the cart, or of what was put into an empty one."""
    required: list[dict[str, Any]] = [{"path": f"/site/orders/{number}", "to": order}]
    plan = [{"do": "order", "address": order["address"]}]
    where = _where(order["address"])
    if order["items"] == before["cart"]:
        required += [{"path": f"/site/cart/{product}", "gone": True} for product in before["cart"]]
        return Reached("order", 1, Made(f"Order what is in the cart, to {where}.", before, required, plan))
    if before["cart"]:
        return None
    what = " and ".join(f"{count} of the {stock[product].name}" for product, count in order["items"].items())
    adds = [_add(stock[product], count) for product, count in order["items"].items()]
    return Reached("order", 2, Made(f"Order {what}, to {where}.", before, required, [*adds, *plan]))


def _fill_cart(tier: int, site: dict[str, Any], stock: list[Product], rng: random.Random) -> Made:
    wanted = [_cheapest(stock, rng)] if tier == 2 else rng.sample(stock, 1 if tier == 1 else 2)
    counts = [rng.randint(1, MOST) for _ in wanted]
    what = [f"{count} of the {_which(product, stock, tier)}" for product, count in zip(wanted, counts, strict=True)]
    required = [{"path": f"/site/cart/{product.id}", "to": count} for product, count in zip(wanted, counts, strict=True)]
    plan = [_add(product, count) for product, count in zip(wanted, counts, strict=True)]
    return Made(f"Put {' and '.join(what)} into the cart.", site, required, plan)


def _order(tier: int, site: dict[str, Any], stock: list[Product], rng: random.Random) -> Made:
    product = _cheapest(stock, rng) if tier == 3 else rng.choice(stock)
    count = rng.randint(1, MOST)
    address = _address(rng)
    where = _where(address)
    number = max(map(int, site["orders"]), default=FIRST_ORDER - 1) + 1
    order = {"items": {product.id: count}, "address": address, "status": "open"}
    required: list[dict[str, Any]] = [{"path": f"/site/orders/{number}", "to": order}]
    plan = [{"do": "order", "address": address}]
    if tier == 1:
        site["cart"] = {product.id: count}
        required.append({"path": f"/site/cart/{product.id}", "gone": True})
        return Made(f"Order what is in the cart, to {where}.", site, required, plan)
    what = _which(product, stock, 2 if tier == 3 else 1)
    return Made(f"Order {count} of the {what}, to {where}.", site, required, [_add(product, count), *plan])


def _cancel(tier: int, site: dict[str, Any], stock: list[Product], rng: random.Random) -> Made:
    names = {product.id: product.name for product in stock}
    open_ones = [number for number, order in site["orders"].items() if order["status"] == "open"]
    number = rng.choice(open_ones)
    order = site["orders"][number]
    (product,) = order["items"]
    asked = {1: f"Cancel order {number}.", 2: f"Cancel the order of the {names[product]}."}
    prompt = asked.get(tier, f"Cancel the order that goes to {order['address']['name']} in {order['address']['city']}.")
    required = [{"path": f"/site/orders/{number}/status", "to": "cancelled"}]
    return Made(prompt, site, required, [{"do": "cancel", "number": number}])


def _clear_cart(tier: int, site: dict[str, Any], stock: list[Product], rng: random.Random) -> Made:
    """Takes things out of a full cart; in the highest tier another one is to come in."""
    inside = rng.sample(stock, 4)
    site["cart"] = {product.id: rng.randint(1, MOST) for product in inside}
    out = rng.sample(inside, 1 if tier == 1 else 2)
    required: list[dict[str, Any]] = [{"path": f"/site/cart/{product.id}", "gone": True} for product in out]
    plan = [{"do": "remove", "name": product.name} for product in out]
    prompt = _removal(out)
    if tier == 3:
        new = rng.choice([product for product in stock if product not in inside])
        count = rng.randint(1, MOST)
        required.append({"path": f"/site/cart/{new.id}", "to": count})
        plan.append(_add(new, count))
        prompt = f"{prompt} Then put {count} of the {new.name} into it."
    return Made(prompt, site, required, plan)


def _orders(stock: list[Product], rng: random.Random) -> dict[str, Any]:
    """Orders of different things to different people, the last of them cancelled before."""
    count = rng.randint(3, 5)
    found = {}
    for place, (product, name) in enumerate(zip(rng.sample(stock, count), rng.sample(NAMES, count), strict=True)):
        status = "cancelled" if place == count - 1 else "open"
        order = {"items": {product.id: rng.randint(1, MOST)}, "address": _address(rng) | {"name": name}, "status": status}
        found[str(FIRST_ORDER + place)] = order
    return found


def _address(rng: random.Random) -> dict[str, str]:
    street = f"{rng.choice(STREETS)} {rng.randint(1, 90)}"
    values = (rng.choice(NAMES), street, str(rng.randint(10000, 99999)), rng.choice(CITIES), rng.choice(COUNTRIES))
    return dict(zip(FIELDS, values, strict=True))


def _where(address: dict[str, str]) -> str:
    return f"{address['name']}, {address['street']}, {address['postcode']} {address['city']}, {address['country']}"


def _removal(out: list[Product]) -> str:
    return f"Remove the {' and the '.join(product.name for product in out)} from the cart."


def _cheapest(stock: list[Product], rng: random.Random) -> Product:
    category = rng.choice(stock).category
    return min((product for product in stock if product.category == category), key=lambda product: product.price)


def _which(product: Product, stock: list[Product], tier: int) -> str:
    return f"cheapest product of the category {product.category}" if tier == 2 else product.name


def _add(product: Product, count: int) -> dict[str, Any]:
    return {"do": "add", "name": product.name, "count": count}
