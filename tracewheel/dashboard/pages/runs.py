"""The first page: all runs, with filters and a search, what is running, and the history of the champion."""

from __future__ import annotations

from typing import Any

from tracewheel.dashboard.progress import progress_of
from tracewheel.dashboard.run_list import SORTS, Prices, champion_curve, champions, passes
from tracewheel.dashboard.view import Ask, page
from tracewheel.report.doctor.finding import SEVERITIES

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
        "running": [(row, progress_of(library.run(row.place, row.run_id))) for row in running],
    }
