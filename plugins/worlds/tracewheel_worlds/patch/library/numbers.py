"""Modules about numbers and lists of numbers."""

from __future__ import annotations

import random
from typing import Any

from tracewheel_worlds.patch.library.base import Bug, Module


def some(rng: random.Random, most: int = 7, largest: int = 30) -> list[int]:
    """A list of whole numbers, perhaps empty."""
    return [rng.randint(0, largest) for _ in range(rng.randint(0, most))]


def _sought(rng: random.Random) -> list[Any]:
    values = sorted(set(some(rng, 9)))
    return [values, rng.choice([*values, 31, rng.randint(0, 30)])]


PAGES = Module(
    "pages",
    '''"""Cutting a list into pages."""


def page_count(items, size):
    """How many pages of `size` items hold `items` items; no items need no page."""
    return (items + size - 1) // size


def page_of(items, number, size):
    """The items of page `number`, counted from 1; a page that does not exist is empty."""
    if number < 1:
        return []
    start = (number - 1) * size
    return items[start : start + size]
''',
    {
        "page_count": lambda rng: [rng.choice([rng.randint(0, 40), 5 * rng.randint(0, 6)]), rng.choice([1, 2, 5, 5, 7])],
        "page_of": lambda rng: [some(rng, 12), rng.randint(-1, 4), rng.randint(1, 4)],
    },
    (
        Bug(
            "boundary",
            "(items + size - 1) // size",
            "items // size + 1",
            "There is one empty page too many when the items fill their pages exactly.",
        ),
        Bug("boundary", "start + size]", "start + size - 1]", "The last item of every page is missing."),
        Bug(
            "missing_case",
            "    if number < 1:\n        return []\n",
            "",
            "A page number of 0 or below shows items from the end of the list. It should show none.",
        ),
    ),
)

LOOKUP = Module(
    "lookup",
    '''"""Finding places in sorted lists."""


def place(values, wanted):
    """Where `wanted` is to be inserted to keep the sorted list in order: before equal values."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def index_of(values, wanted):
    """The place of `wanted` in a sorted list, None where it is not there."""
    found = place(values, wanted)
    if found == len(values) or values[found] != wanted:
        return None
    return found
''',
    {
        "place": _sought,
        "index_of": _sought,
    },
    (
        Bug(
            "boundary",
            "low, high = 0, len(values)",
            "low, high = 0, max(len(values) - 1, 0)",
            "A value larger than all others gets the wrong place: before the last one.",
        ),
        Bug(
            "condition",
            "if values[middle] < wanted:",
            "if values[middle] <= wanted:",
            "Values that are in the list are not found.",
        ),
        Bug(
            "missing_case",
            "if found == len(values) or values[found] != wanted:",
            "if values[found] != wanted:",
            "Looking for a value beyond the end of a list raises IndexError. The answer is None.",
        ),
    ),
)

FIGURES = Module(
    "figures",
    '''"""Figures over lists of numbers."""


def median(values):
    """The middle value, or the mean of the two in the middle; None for an empty list."""
    if not values:
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def sums_of(values, width):
    """The sum of every `width` neighbours, from left to right."""
    return [sum(values[start : start + width]) for start in range(len(values) - width + 1)]


def longest_rise(values):
    """The length of the longest stretch in which each value is larger than the one before."""
    longest = current = 0
    for number, value in enumerate(values):
        if number and value > values[number - 1]:
            current += 1
        else:
            current = 1
        longest = max(longest, current)
    return longest
''',
    {
        "median": lambda rng: [some(rng)],
        "sums_of": lambda rng: [some(rng), rng.randint(1, 4)],
        "longest_rise": lambda rng: [some(rng, 9, 6)],
    },
    (
        Bug(
            "missing_case",
            "    if not values:\n        return None\n",
            "",
            "The median of an empty list raises IndexError. It should be None.",
        ),
        Bug(
            "boundary",
            "(ordered[half - 1] + ordered[half]) / 2",
            "(ordered[half] + ordered[min(half + 1, len(ordered) - 1)]) / 2",
            "The median of an even number of values is too large.",
        ),
        Bug(
            "boundary",
            "range(len(values) - width + 1)",
            "range(len(values) - width)",
            "The sums of neighbours lack the last one.",
        ),
        Bug(
            "condition",
            "value > values[number - 1]",
            "value >= values[number - 1]",
            "The longest rise counts equal neighbours as rising.",
        ),
    ),
)

ROMAN = Module(
    "roman",
    '''"""Roman numerals from 1 to 3999."""

SIGNS = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
    (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)


def to_roman(number):
    """The numeral of a number; ValueError outside 1 to 3999."""
    if number < 1 or number > 3999:
        raise ValueError(number)
    written = ""
    for value, sign in SIGNS:
        while number >= value:
            written += sign
            number -= value
    return written


def from_roman(text):
    """The number of a numeral, in capital or small letters."""
    text = text.upper()
    number = place = 0
    for value, sign in SIGNS:
        while text[place : place + len(sign)] == sign:
            number += value
            place += len(sign)
    return number
''',
    {
        "to_roman": lambda rng: [rng.choice([rng.randint(1, 3999), rng.randint(1, 50), 3999, 4000, 0, 1000, 500, 10])],
        "from_roman": lambda rng: [rng.choice(["XIV", "xl", "MCMXC", "iii", "CDXLIV", "mmxxvi", "LIX", "xcix", "DCVII"])],
    },
    (
        Bug("boundary", "number > 3999", "number >= 3999", "3999 is refused, though it can be written."),
        Bug(
            "condition",
            "while number >= value:",
            "while number > value:",
            "Round numbers come out too small: the last sign is missing.",
        ),
        Bug("missing_case", '(9, "IX"), ', "", "Numbers that end in 9 are written with VIIII."),
        Bug("missing_case", "    text = text.upper()\n", "", "Numerals in small letters are read as 0."),
    ),
)

NUMBERS = (PAGES, LOOKUP, FIGURES, ROMAN)
