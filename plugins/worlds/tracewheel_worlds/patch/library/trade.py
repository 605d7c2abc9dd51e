"""Modules about stock, prices and orders."""

from __future__ import annotations

import random
from typing import Any

from tracewheel_worlds.patch.library.base import Bug, Module

ITEMS = ("lamp", "chair", "rug", "vase")


def _stock(rng: random.Random) -> dict[str, int]:
    return {item: rng.randint(0, 5) for item in ITEMS[: rng.randint(1, 4)]}


def _lines(rng: random.Random) -> list[list[Any]]:
    return [[rng.choice(ITEMS), rng.randint(1, 4), rng.choice([5, 120, 250, 999, 2500])] for _ in range(rng.randint(0, 4))]


STOCK = Module(
    "stock",
    '''"""What is in stock, as counts by item."""


def take(stock, item, count):
    """The stock after `count` of an item are taken; ValueError where there are too few. The given stock stays as it is."""
    have = stock.get(item, 0)
    if count > have:
        raise ValueError(f"only {have} of {item}")
    left = dict(stock)
    left[item] = have - count
    if left[item] == 0:
        del left[item]
    return left


def low(stock, level):
    """The items with fewer than `level` left, in alphabetical order."""
    return sorted(item for item, count in stock.items() if count < level)


def take_all(stock, wanted):
    """The stock after all of the wanted [item, count] are taken, one after the other."""
    for item, count in wanted:
        stock = take(stock, item, count)
    return stock
''',
    {
        "take": lambda rng: [
            (stock := _stock(rng)),
            (item := rng.choice(ITEMS)),
            rng.choice([stock.get(item, 0) or 1, rng.randint(1, 5)]),
        ],
        "low": lambda rng: [_stock(rng), rng.randint(0, 5)],
        "take_all": lambda rng: [
            dict.fromkeys(ITEMS, 6),
            [[rng.choice(ITEMS), rng.randint(1, 3)] for _ in range(rng.randint(0, 4))],
        ],
    },
    (
        Bug("boundary", "if count > have:", "if count >= have:", "The last ones of an item cannot be taken."),
        Bug("boundary", "if count < level)", "if count <= level)", "Items with just the level left are listed as low."),
        Bug(
            "missing_case",
            "stock.get(item, 0)",
            "stock[item]",
            "Taking an item that is not in stock raises KeyError. It should be ValueError, as for too few.",
        ),
        Bug(
            "missing_case",
            "    if left[item] == 0:\n        del left[item]\n",
            "",
            "Items of which none is left stay in the stock with 0.",
        ),
        Bug("condition", "return sorted(item for", "return list(item for", "Low items are not in alphabetical order."),
        Bug(
            "interplay",
            "stock = take(stock, item, count)",
            "take(stock, item, count)",
            "Taking several items leaves the stock as it was.",
        ),
    ),
)

PRICES = Module(
    "prices",
    '''"""Prices in cents."""


def cents(text):
    """The cents of a price such as `12.50`, `12.5` or `12`."""
    whole, _, part = text.partition(".")
    return int(whole) * 100 + int((part + "00")[:2])


def shown(amount):
    """A price as text with two digits after the point; a minus first if it is below zero."""
    sign = "-" if amount < 0 else ""
    return f"{sign}{abs(amount) // 100}.{abs(amount) % 100:02d}"


def reduced(amount, percent):
    """An amount less some percent, in whole cents; the reduction is rounded down."""
    return amount - amount * percent // 100
''',
    {
        "cents": lambda rng: [
            rng.choice(
                [
                    f"{rng.randint(0, 99)}.{rng.randint(0, 99):02d}",
                    f"{rng.randint(0, 99)}",
                    f"{rng.randint(1, 9)}.{rng.randint(1, 9)}",
                ]
            )
        ],
        "shown": lambda rng: [rng.choice([rng.randint(0, 9999), rng.randint(0, 120), -rng.randint(1, 999)])],
        "reduced": lambda rng: [rng.randint(0, 3000), rng.randint(0, 60)],
    },
    (
        Bug("missing_case", 'int((part + "00")[:2])', "int(part or 0)", "A price such as 12.5 is read as 12.05."),
        Bug("missing_case", ":02d}", "}", "Prices with few cents are shown with one digit, as 3.7 for 3.07."),
        Bug("missing_case", '"-" if amount < 0 else ""', '""', "Amounts below zero are shown without a minus."),
        Bug(
            "condition",
            "amount - amount * percent // 100",
            "amount * (100 - percent) // 100",
            "A reduced price is sometimes a cent too low: the reduction is to be rounded down, not the price.",
        ),
        Bug("boundary", "abs(amount) // 100}", "(abs(amount) - 1) // 100}", "Round prices are shown with a unit too few."),
    ),
)

ORDERS = Module(
    "orders",
    '''"""Orders: lists of [item, count, price in cents]."""

from PACKAGE.prices import reduced, shown
from PACKAGE.stock import take_all

FREE_FROM = 5000
POSTAGE = 490


def goods(lines):
    """The price of all goods of an order, in cents."""
    return sum(count * price for _, count, price in lines)


def postage(amount):
    """What sending costs: nothing for no goods, and nothing from FREE_FROM on."""
    if amount == 0 or amount >= FREE_FROM:
        return 0
    return POSTAGE


def total(lines, percent):
    """What an order costs: the reduced price of the goods, and postage by that price."""
    amount = reduced(goods(lines), percent)
    return amount + postage(amount)


def bill(lines, percent):
    """A line for each [item, count, price] and one for the total."""
    rows = [f"{count} {item} {shown(count * price)}" for item, count, price in lines]
    return [*rows, f"total {shown(total(lines, percent))}"]


def send(stock, lines):
    """The stock after an order is sent; ValueError where there is too little of an item."""
    return take_all(stock, [[item, count] for item, count, _ in lines])
''',
    {
        "goods": lambda rng: [_lines(rng)],
        "postage": lambda rng: [rng.choice([0, 5000, 4999, 5001, rng.randint(1, 9000)])],
        "total": lambda rng: [_lines(rng), rng.choice([0, 10, 25])],
        "bill": lambda rng: [_lines(rng), rng.choice([0, 10])],
        "send": lambda rng: [{item: rng.randint(2, 6) for item in ITEMS}, _lines(rng)],
    },
    (
        Bug("boundary", "amount >= FREE_FROM", "amount > FREE_FROM", "An order of just 50.00 pays postage."),
        Bug("missing_case", "amount == 0 or ", "", "An order without goods pays postage."),
        Bug(
            "condition",
            "count * price for _, count, price in lines)",
            "price for _, count, price in lines)",
            "An order of several of one item costs as much as one.",
        ),
        Bug(
            "interplay",
            "amount + postage(amount)",
            "amount + postage(goods(lines))",
            "Postage follows the price before the reduction. It is to follow the reduced one.",
        ),
        Bug(
            "interplay",
            "shown(count * price)}",
            "shown(price)}",
            "Lines of a bill show the price of one piece, which does not add up to the total.",
        ),
        Bug(
            "interplay",
            "reduced(goods(lines), percent)",
            "reduced(percent, goods(lines))",
            "Totals are far too low: next to nothing is left of an order.",
        ),
        Bug(
            "interplay",
            "[[item, count] for item, count, _ in lines]",
            "[[item, 1] for item, count, _ in lines]",
            "Sending an order of several of one item takes only one from the stock.",
        ),
    ),
    ("prices", "stock"),
)

TRADE = (STOCK, PRICES, ORDERS)
