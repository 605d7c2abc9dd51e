"""What a shop sells: the same for the same number."""

from __future__ import annotations

import random
from typing import NamedTuple

CATEGORIES = {
    "Kitchen": ("mug", "bowl", "kettle", "pan", "tray"),
    "Garden": ("rake", "pot", "hose", "lantern", "bench"),
    "Office": ("lamp", "stapler", "folder", "clock", "chair"),
}
COLOURS = ("blue", "green", "red", "white", "black")
COUNTRIES = ("Austria", "Belgium", "Denmark", "France", "Germany", "Italy", "Spain")
EACH = 8  # products of a category


class Product(NamedTuple):
    """Something that is sold; names differ, and prices differ within a category."""

    id: str
    name: str
    category: str
    price: int


def products(catalogue: int) -> list[Product]:
    """All that the shop sells."""
    rng = random.Random(f"catalogue-{catalogue}")
    found: list[Product] = []
    for category, things in CATEGORIES.items():
        names = rng.sample([f"{colour} {thing}" for colour in COLOURS for thing in things], EACH)
        for name, price in zip(names, rng.sample(range(5, 90), EACH), strict=True):
            found.append(Product(f"p{len(found) + 1}", name, category, price))
    rng.shuffle(found)
    return found
