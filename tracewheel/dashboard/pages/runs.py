"""The first page: all runs, with filters and a search, what is running, and the history of the champion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tracewheel.dashboard.curves import Curve
from tracewheel.dashboard.pages.candidates import waiting
from tracewheel.dashboard.progress import progress_of
from tracewheel.dashboard.run_rows import RunRow
from tracewheel.dashboard.view import Ask, Crumb, address, page
from tracewheel.report.cost import cost_per_point, priced
from tracewheel.report.doctor.finding import SEVERITIES
from tracewheel.report.glossary import glossary_rows

MOST_CHAMPIONS = 60


@dataclass(frozen=True)
class Prices:
    """Prices that a reader asked for: of an hour and of a million tokens; None for what costs nothing."""

    hour: float | None = None
    million: float | None = None
    currency: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Prices:
        """The prices of an address; without any, those of the profiles hold."""
        return cls(_price(asked.get("hour")), _price(asked.get("million")), asked.get("currency", "")[:8])

    def __bool__(self) -> bool:
        return self.hour is not None or self.million is not None

    def on(self, row: RunRow) -> RunRow:
        """A row at these prices; unchanged where none are given or the cost is not known."""
        if not self or row.seconds is None:
            return row
        cost = priced(row.seconds, row.tokens or 0, (self.hour, self.million), self.currency)
        each = cost_per_point(cost, row.gain, row.verdict == "promoted")
        return replace(row, money=cost.money, currency=self.currency, per_point=each)


def passes(row: RunRow, asked: Mapping[str, str]) -> bool:
    """Whether a row passes the filters of an address: words, state, folder, doctor's finding, and the day it began."""
    text = f"{row.run_id} {row.name} {row.state} {row.message} {row.started} {row.version}".casefold()
    return (
        all(word in text for word in asked.get("q", "").casefold().split())
        and asked.get("state", "") in ("", row.state)
        and asked.get("place", "") in ("", row.place)
        and asked.get("doctor", "") in ("", row.worst or "not looked")
        and row.started[:10] >= asked.get("since", "")[:10]
    )


SORTS: dict[str, Callable[[RunRow], Any]] = {
    "started": lambda row: row.started,
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "before": lambda row: _least(row.before),
    "after": lambda row: _least(row.after),
    "gain": lambda row: _least(row.gain),
    "seconds": lambda row: _least(row.seconds),
    "tokens": lambda row: _least(row.tokens),
    "money": lambda row: _least(row.money),
    "point": lambda row: _least(row.per_point.get("seconds")),
    "doctor": lambda row: -SEVERITIES.index(row.worst) if row.worst in SEVERITIES else -9,
}


def champions(rows: Iterable[RunRow], place: str = "") -> list[RunRow]:
    """The promoted runs of one folder in the order of their start: each folder has a champion of its own.

    Args:
        rows: All runs.
        place: The folder; "" for the one with the most promotions.
    """
    found: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.verdict == "promoted" and place in ("", row.place):
            found.setdefault(row.place, []).append(row)
    if not found:
        return []
    most = max(found.values(), key=len)
    return sorted(most, key=lambda row: row.started)


def champion_curve(promoted: list[RunRow]) -> Curve | None:
    """Success of the champions, one after another, with that of the baselines that they beat; None below two."""
    shown = [row for row in promoted if row.after is not None][-MOST_CHAMPIONS:]
    if len(shown) < 2:
        return None
    numbered = list(enumerate(shown, 1))
    ends = {
        "champion": [(number, *row.after_interval) for number, row in numbered if len(row.after_interval) == 2],
        "policy it beat": [(number, *row.before_interval) for number, row in numbered if len(row.before_interval) == 2],
    }
    return Curve(
        f"Champions of {shown[0].place}",
        {
            "champion": [(number, row.after) for number, row in numbered],
            "policy it beat": [(number, row.before) for number, row in numbered],
        },
        "success on held-out tasks of each run; their tasks may differ",
        (0.0, 1.0),
        bands={name: [(n, float(low), float(high)) for n, low, high in band] for name, band in ends.items()},
        axis="promotion",
        links={number: address("runs", row.place, row.run_id) for number, row in numbered},
    )


def _price(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if math.isfinite(found) and 0 <= found < 1e9 else None


def _least(value: float | None) -> float:
    return float("-inf") if value is None else value


MOST_RUNNING = 12


@page("/", "runs.html", part="table")
def runs(ask: Ask) -> dict[str, Any]:
    """The runs that pass the filters, a page of them."""
    library, every = ask.desk.library, ask.desk.rows.all()
    prices, order = Prices.of(ask.query), ask.order(SORTS, "started")
    chosen = [prices.on(row) for row in every if passes(row, ask.query)]
    chosen.sort(key=SORTS[order["sort"]], reverse=not order["up"])
    promoted = champions(every, ask.query.get("place", ""))
    running = [row for row in every if row.is_running][:MOST_RUNNING]
    return {
        **order,
        "rows": chosen[order["first"] : order["first"] + order["page_size"]],
        "found": len(chosen),
        "every": len(every),
        "states": sorted({row.state for row in every}),
        "severities": [*SEVERITIES, "not looked"],
        "places": list(library.places),
        "champions": promoted,
        "curve": champion_curve(promoted),
        "candidates": waiting(library),
        "running": [(row, progress_of(library.run(row.place, row.run_id))) for row in running],
    }


@page("/help", "help.html")
def help_page(ask: Ask) -> dict[str, Any]:
    """Keys, words and addresses."""
    return {"crumbs": [Crumb("Help")], "figures": glossary_rows()}
