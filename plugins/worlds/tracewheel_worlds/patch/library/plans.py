"""Modules about days, spans of days and bookings."""

from __future__ import annotations

import random
from typing import Any

from tracewheel_worlds.patch.library.base import Bug, Module


def _span(rng: random.Random) -> list[int]:
    start = rng.randint(0, 12)
    return [start, start + rng.randint(0, 5)]


def _spans(rng: random.Random) -> list[list[int]]:
    return [_span(rng) for _ in range(rng.randint(0, 5))]


def _day(rng: random.Random) -> list[Any]:
    year, month = rng.choice([1900, 2000, 2023, 2024, 2100]), rng.choice([1, 2, 2, 4, 12])
    return [year, month, rng.choice([1, 15, 28, *((29, 30, 31) if month in (1, 12) else ())])]


DAYS = Module(
    "days",
    '''"""Days of the calendar."""

LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_leap(year):
    """Whether a year has 366 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in(year, month):
    """How many days a month has; months count from 1."""
    if month == 2 and is_leap(year):
        return 29
    return LENGTHS[month - 1]


def next_day(year, month, day):
    """The day after, as [year, month, day]."""
    if day < days_in(year, month):
        return [year, month, day + 1]
    if month < 12:
        return [year, month + 1, 1]
    return [year + 1, 1, 1]
''',
    {
        "is_leap": lambda rng: [rng.choice([1900, 2000, 2100, 2024, 2023, 1996, rng.randint(1800, 2400)])],
        "days_in": lambda rng: [rng.choice([1900, 2000, 2024, 2023]), rng.randint(1, 12)],
        "next_day": _day,
    },
    (
        Bug(
            "missing_case",
            "year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)",
            "year % 4 == 0",
            "1900 and 2100 are taken for leap years.",
        ),
        Bug("missing_case", "(year % 100 != 0 or year % 400 == 0)", "year % 100 != 0", "2000 is not taken for a leap year."),
        Bug("boundary", "LENGTHS[month - 1]", "LENGTHS[month % 12]", "Months have the length of the month after."),
        Bug(
            "boundary",
            "if day < days_in(year, month):",
            "if day <= days_in(year, month):",
            "After the last day of a month comes a day that does not exist.",
        ),
        Bug("condition", "if month < 12:", "if month < 11:", "After the last day of November comes the new year."),
        Bug(
            "interplay",
            "if day < days_in(year, month):",
            "if day < days_in(year, month - 1):",
            "The day after the last day of a month is wrong in many months: next_day asks for another month.",
        ),
    ),
)

SPANS = Module(
    "spans",
    '''"""Spans [start, end): the end does not belong to a span."""


def overlap(one, other):
    """Whether two spans share a part; an empty span shares none."""
    return max(one[0], other[0]) < min(one[1], other[1])


def merge(spans):
    """The same parts as few spans, in order; spans that touch become one, empty ones vanish."""
    merged = []
    for start, end in sorted(spans):
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def covered(spans):
    """How much some spans cover together; what several cover counts once."""
    return sum(end - start for start, end in merge(spans))
''',
    {
        "overlap": lambda rng: [_span(rng), _span(rng)],
        "merge": lambda rng: [_spans(rng)],
        "covered": lambda rng: [_spans(rng)],
    },
    (
        Bug(
            "boundary",
            "max(one[0], other[0]) < min(one[1], other[1])",
            "max(one[0], other[0]) <= min(one[1], other[1])",
            "Spans that only touch are said to overlap.",
        ),
        Bug("boundary", "start <= merged[-1][1]", "start < merged[-1][1]", "Spans that touch are not merged into one."),
        Bug(
            "condition",
            "merged[-1][1] = max(merged[-1][1], end)",
            "merged[-1][1] = end",
            "Merging a span with one inside it makes it shorter.",
        ),
        Bug("missing_case", "        if start == end:\n            continue\n", "", "Empty spans appear among merged ones."),
        Bug("missing_case", "in sorted(spans)", "in spans", "Merging goes wrong for spans that are not in order."),
        Bug(
            "interplay",
            "for start, end in merge(spans))",
            "for start, end in spans)",
            "What several spans cover is counted more than once.",
        ),
    ),
)

BOOKINGS = Module(
    "bookings",
    '''"""Bookings of a room: spans of days."""

from PACKAGE.spans import merge, overlap


def is_free(bookings, wanted):
    """Whether the room is free for all of the wanted span."""
    return not any(overlap(booking, wanted) for booking in bookings)


def gaps(bookings, first, last):
    """The free spans between the days `first` and `last`, in order."""
    free, start = [], first
    for begin, end in merge(bookings):
        if begin > start:
            free.append([start, min(begin, last)])
        start = max(start, end)
        if start >= last:
            break
    if start < last:
        free.append([start, last])
    return [gap for gap in free if gap[0] < gap[1]]


def price(span, rate, week_rate):
    """The price of a stay: full weeks at their own rate, other nights each at the day's."""
    weeks, nights = divmod(span[1] - span[0], 7)
    return weeks * week_rate + nights * rate
''',
    {
        "is_free": lambda rng: [_spans(rng), _span(rng)],
        "gaps": lambda rng: [_spans(rng), rng.randint(0, 5), rng.randint(8, 20)],
        "price": lambda rng: [
            (start := rng.randint(0, 5), start + rng.randint(0, 22)),
            rng.randint(40, 60),
            rng.randint(200, 300),
        ],
    },
    (
        Bug("condition", "return not any(", "return not all(", "A room with one booking in the way is said to be free."),
        Bug("boundary", "min(begin, last)", "min(begin - 1, last)", "Gaps before a booking end a day too early."),
        Bug(
            "missing_case",
            "    if start < last:\n        free.append([start, last])\n",
            "",
            "The gap after the last booking is missing.",
        ),
        Bug(
            "interplay",
            "in merge(bookings):",
            "in bookings:",
            "Gaps are wrong where bookings overlap or are not in order; gaps counts on them as merge gives them.",
        ),
        Bug(
            "interplay",
            "overlap(booking, wanted)",
            "overlap([booking[0], booking[1] + 1], wanted)",
            "A room is not free on the day on which another booking ends, though the end of a span does not belong to it.",
        ),
        Bug(
            "condition",
            "weeks * week_rate + nights * rate",
            "weeks * rate + nights * week_rate",
            "Stays of a few nights cost far too much.",
        ),
    ),
    ("spans",),
)

PLANS = (DAYS, SPANS, BOOKINGS)
