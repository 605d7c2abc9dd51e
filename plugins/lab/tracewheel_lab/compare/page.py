"""Two or more runs side by side: what differs in their settings, metrics, tasks gained and lost, costs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tracewheel import Ask, DataError, FinishedRun, Tab, TracewheelError, page
from tracewheel_lab.compare.comparison import GREEDY, compare_runs
from tracewheel_lab.compare.sections import as_text

MOST_RUNS, MOST_CHANGES, MOST_KEPT = 6, 200, 16
_kept: dict[tuple[tuple[Path, int], ...], dict[str, Any]] = {}
_lock = threading.Lock()


@page("/compare", "compare.html", tab=Tab("Compare", "c", 1), folder=Path(__file__).parent)
def compare(ask: Ask) -> dict[str, Any]:
    """The comparison of the runs that the address names (`run=PLACE/RUN`, the first is the base), or how to choose some."""
    names = list(dict.fromkeys(name for name in ask.request.query_params.getlist("run") if name))
    chosen = [_chosen(ask, name) for name in names[:MOST_RUNS]]
    found, trouble = {}, ""
    if len(chosen) > 1:
        try:
            found = _compared([run for run, _ in chosen])
        except TracewheelError as flaw:
            trouble = str(flaw)
        except (KeyError, OSError) as flaw:  # a run that has only begun, or that an earlier version made
            trouble = f"one of the runs has no record that can be compared yet ({type(flaw).__name__}: {flaw})"
    return {
        "chosen": [row for _, row in chosen],
        "names": names,
        "too_many": len(names) > MOST_RUNS,
        "found": found,
        "trouble": trouble,
        "every": [row for row in ask.desk.rows.all() if f"{row.place}/{row.run_id}" not in names][:200],
        "as_text": as_text,
        "ends": [_ends(one) for one in found.get("comparisons", ())],
        "most": MOST_CHANGES,
        "part_name": GREEDY,
    }


def _chosen(ask: Ask, name: str) -> tuple[FinishedRun, Any]:
    """A run, and its row in the list of runs."""
    place, _, run_id = name.partition("/")
    return ask.desk.library.run(place, run_id), ask.desk.rows.of(place, run_id)


def _compared(runs: list[FinishedRun]) -> dict[str, Any]:
    """The comparison, kept until a record of one of the runs changes."""
    key = tuple((run.record.path, _changed(run.record.path)) for run in runs)
    with _lock:
        known = _kept.get(key)
    if known is None:
        known = compare_runs(runs, excerpts=0)
        with _lock:
            while len(_kept) >= MOST_KEPT:
                del _kept[next(iter(_kept))]
            _kept[key] = known
    return known


def _changed(record: Path) -> int:
    try:
        return max(file.stat().st_mtime_ns for file in record.iterdir())
    except OSError as flaw:
        raise DataError(f"{record}: cannot be read: {flaw}") from flaw


def _ends(comparison: dict[str, Any]) -> list[float]:
    """What an axis of all differences holds."""
    rows = [row for part in comparison["splits"].values() if part["paired"] for row in part["paired"]["rows"]]
    return [end for row in rows for end in (row["difference"], *(row["interval"] or ()))]
